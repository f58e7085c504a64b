package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

var released = edition{version: "v1.2.3", commit: "0123456789abcdef", at: time.Unix(1_700_000_000, 0).UTC()}

// packed makes a distribution of programs that do nothing, and so are built in no
// time; those for arm64 only say so, since its runtime would have to be compiled.
func packed(t *testing.T) distribution {
	t.Helper()
	amd64, arm64 := platform{"linux", "amd64"}, platform{"linux", "arm64"}
	from, built := sources(t), t.TempDir()
	for program := range programs {
		dir := filepath.Join(from, "cmd", program)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		text := "package main\n\nfunc main() { print(\"" + program + "\") }\n"
		if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	env := []string{"GOOS=linux", "GOARCH=amd64"}
	script(t, from, env, "build.sh", append([]string{filepath.Join(built, amd64.String())}, slices.Collect(maps.Keys(programs))...)...)
	if err := os.MkdirAll(filepath.Join(built, arm64.String()), 0o755); err != nil {
		t.Fatal(err)
	}
	for program := range programs {
		said := strings.ReplaceAll(read(t, filepath.Join(built, amd64.String()), program), "GOARCH=amd64", "GOARCH=arm64")
		if err := os.WriteFile(filepath.Join(built, arm64.String(), program), []byte(said), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	checkout := t.TempDir()
	for name, text := range map[string]string{
		"LICENSE":                            "Apache-2.0\n",
		"CHANGELOG.md":                       "# Changelog\n\n## [1.2.3] - 2026-11-21\n\n### Added\n\n- All.\n",
		"charts/phasegate/files/crds/a.yaml": "---\nkind: CustomResourceDefinition\n",
		"charts/phasegate/files/crds/b.yaml": "---\nkind: CustomResourceDefinition\n",
	} {
		path := filepath.Join(checkout, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d := distribution{edition: released, platforms: []platform{amd64, arm64}, root: checkout, built: built, dir: t.TempDir()}
	d.make(t)
	return d
}

func (d distribution) make(t *testing.T) {
	t.Helper()
	if err := d.images(filepath.Join(d.dir, "images")); err != nil {
		t.Fatal(err)
	}
	if err := d.pack(); err != nil {
		t.Fatal(err)
	}
}

func TestDistribution(t *testing.T) {
	d := packed(t)
	t.Run("files", func(t *testing.T) { d.testFiles(t) })
	t.Run("image", func(t *testing.T) { d.testImage(t) })
	t.Run("spoiled", func(t *testing.T) { d.testSpoiled(t) })
}

func (d distribution) testFiles(t *testing.T) {
	if err := d.check(); err != nil {
		t.Errorf("what was packed does not fit together:\n%v", err)
	}

	var names, want []string
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	for _, p := range []string{"linux_amd64", "linux_arm64"} {
		for _, program := range []string{"kubectl-phasegate", "manager", "proxyrunner"} {
			want = append(want, program+"_v1.2.3_"+p+".cdx.json", program+"_v1.2.3_"+p+".tar.gz")
		}
	}
	want = append(want, "checksums.txt", "crds.yaml", "images", "images.txt", "phasegate.yaml", "release-notes.md")
	slices.Sort(want)
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("published files (-want +got):\n%s", diff)
	}

	// The form is that of sha256sum: whoever downloads has that program.
	sha256sum := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "--quiet", checksumsFile)
	sha256sum.Dir = d.dir
	if out, err := sha256sum.CombinedOutput(); err != nil {
		t.Errorf("sha256sum --check: %v\n%s", err, out)
	}

	again := d
	again.dir = t.TempDir()
	again.make(t)
	for _, name := range []string{checksumsFile, "images.txt"} {
		if first, second := read(t, d.dir, name), read(t, again.dir, name); first != second {
			t.Errorf("the same programs, packed again, have another %s (-first +second):\n%s", name, cmp.Diff(first, second))
		}
	}
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// testSpoiled spoils the distribution in one place at a time.
func (d distribution) testSpoiled(t *testing.T) {
	archive := "kubectl-phasegate_v1.2.3_linux_amd64.tar.gz"
	other := "kubectl-phasegate_v1.2.3_linux_arm64.tar.gz"
	for name, c := range map[string]struct {
		file  string
		spoil func(data string) string
		want  string
		why   string
	}{
		"checksums": {
			file: checksumsFile, spoil: func(s string) string { return strings.Replace(s, archive, other, 1) },
			want: "checksums.txt does not fit the files", why: "a checksum of another file",
		},
		"platform": {
			file: archive, spoil: func(string) string { return read(t, d.dir, other) },
			want: "the program in it is for linux_arm64", why: "archives mixed up",
		},
		"bill": {
			file: "manager_v1.2.3_linux_arm64.cdx.json", spoil: func(string) string { return read(t, d.dir, "manager_v1.2.3_linux_amd64.cdx.json") },
			want: "manager_v1.2.3_linux_arm64.cdx.json is of another program", why: "the bill of another build",
		},
		"krew": {
			file: "phasegate.yaml", spoil: func(s string) string { return strings.Replace(s, "from: LICENSE", "from: LICENCE", 1) },
			want: "LICENCE is not in", why: "krew fails at a file that is not there",
		},
		"unknown field": {
			file: "phasegate.yaml", spoil: func(s string) string { return s + "status: {}\n" },
			want: "unknown field", why: "krew ignores what it does not know, so a typo would be silent",
		},
	} {
		t.Run(name, func(t *testing.T) {
			good := read(t, d.dir, c.file)
			write := func(text string) {
				if err := os.WriteFile(filepath.Join(d.dir, c.file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			write(c.spoil(good))
			defer write(good)
			if err := d.check(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: check says %v, not %q", c.why, err, c.want)
			}
		})
	}
}

func TestKrewRules(t *testing.T) {
	good := func() krewManifest {
		data, err := krew(released, platforms, map[string]string{
			"kubectl-phasegate_v1.2.3_linux_amd64.tar.gz": strings.Repeat("a", 64), "kubectl-phasegate_v1.2.3_linux_arm64.tar.gz": strings.Repeat("b", 64),
			"kubectl-phasegate_v1.2.3_darwin_amd64.tar.gz": strings.Repeat("c", 64), "kubectl-phasegate_v1.2.3_darwin_arm64.tar.gz": strings.Repeat("d", 64),
		})
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "phasegate.yaml")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		var m krewManifest
		readYAML(t, path, &m)
		return m
	}
	for name, c := range map[string]struct {
		change func(m *krewManifest)
		want   []string
		why    string
	}{
		"as written": {change: func(*krewManifest) {}, why: "ours keeps the rules"},
		"name":       {change: func(m *krewManifest) { m.Metadata.Name = "Phase_Gate" }, want: []string{`the name "Phase_Gate" is not lower-kebab`}, why: "names are file names"},
		"version":    {change: func(m *krewManifest) { m.Spec.Version = "1.2.3" }, want: []string{`the version "1.2.3" is not v and a semantic version`}, why: "krew asks for the v"},
		"description": {
			change: func(m *krewManifest) { m.Spec.ShortDescription = strings.Repeat("x", 51) },
			want:   []string{"the short description has 51 characters, not 1 to 50"}, why: "kubectl krew search cuts it",
		},
		"platforms": {change: func(m *krewManifest) { m.Spec.Platforms = nil }, want: []string{"there are no platforms"}, why: "nobody could install it"},
		"twice": {
			change: func(m *krewManifest) { m.Spec.Platforms[1].Selector = m.Spec.Platforms[0].Selector },
			want:   []string{"two platforms match {linux amd64}"}, why: "krew takes any of the two",
		},
		"program": {
			change: func(m *krewManifest) { m.Spec.Platforms[2].Bin = "phasegate" },
			want:   []string{`platform 2: bin "phasegate" is not among the files`}, why: "the link would lead nowhere",
		},
		"hash": {change: func(m *krewManifest) { m.Spec.Platforms[0].SHA256 = "a" }, want: []string{`platform 0: "a" is no sha256`}, why: "krew refuses the download"},
	} {
		t.Run(name, func(t *testing.T) {
			m := good()
			c.change(&m)
			var got []string
			for _, err := range krewRules(m) {
				got = append(got, err.Error())
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
		})
	}
}

// TestBillIsCycloneDX holds a bill against the standard's own schema, and against
// what this test program says of itself.
func TestBillIsCycloneDX(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	data, err := bill(self, released)
	if err != nil {
		t.Fatal(err)
	}
	var got any
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if err := cycloneDX(t).Validate(got); err != nil {
		t.Errorf("the bill is not CycloneDX: %v\n%s", err, data)
	}

	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(bytes.NewReader(data), cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	program := bom.Metadata.Component
	if program.Version != "v1.2.3" || (*program.Hashes)[0].Value != sum([]byte(read(t, filepath.Dir(self), filepath.Base(self)))) {
		t.Errorf("the bill is of %+v, not of this program", program)
	}
	// The standard library has vulnerabilities as others have.
	missing := map[string]bool{"pkg:golang/std@" + strings.TrimPrefix(runtime.Version(), "go"): true, "pkg:golang/github.com/google/uuid@v1.6.0": true}
	for _, c := range *bom.Components {
		delete(missing, c.PackageURL)
	}
	if len(missing) > 0 {
		t.Errorf("in this program, but not in its bill: %v\n%s", missing, data)
	}
}

// cycloneDX compiles the schema that comes with the library.
func cycloneDX(t *testing.T) *jsonschema.Schema {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/CycloneDX/cyclonedx-go").Output()
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	for _, name := range []string{"bom-1.6.schema.json", "spdx.schema.json", "jsf-0.82.schemax.json"} {
		f, err := os.Open(filepath.Join(strings.TrimSpace(string(dir)), "schema", name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close() //nolint:errcheck // only read
		document, err := jsonschema.UnmarshalJSON(f)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		// They name each other by where the standard publishes them.
		published := "http://cyclonedx.org/schema/" + strings.Replace(name, "schemax", "schema", 1)
		if err := compiler.AddResource(published, document); err != nil {
			t.Fatal(err)
		}
	}
	schema, err := compiler.Compile("http://cyclonedx.org/schema/bom-1.6.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// testImage reads an image back as a node that pulls it would.
func (d distribution) testImage(t *testing.T) {
	images, digest, err := readImages(filepath.Join(d.dir, "images/manager"))
	if err != nil {
		t.Fatal(err)
	}
	if want, got := fmt.Sprintf("ghcr.io/phasegate/manager:1.2.3@%s\n", digest), read(t, d.dir, "images.txt"); !strings.Contains(got, want) {
		t.Errorf("images.txt has not the digest that a node pulls, %s:\n%s", want, got)
	}
	for p, img := range images {
		got, err := img.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		want := &v1.ConfigFile{
			Architecture: p.arch, OS: p.os, Created: v1.Time{Time: released.at},
			RootFS: v1.RootFS{Type: "layers", DiffIDs: got.RootFS.DiffIDs[:1]}, History: []v1.History{{Created: v1.Time{Time: released.at}, CreatedBy: "hack/release.sh"}},
			Config: v1.Config{User: "65532:65532", WorkingDir: "/", Entrypoint: []string{"/manager"}, Labels: labels("manager", released)},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: one layer, no root (-want +got):\n%s", p, diff)
		}
		files, err := contents(img)
		if err != nil {
			t.Fatal(err)
		}
		program := read(t, filepath.Join(d.built, p.String()), "manager")
		if !cmp.Equal(map[string]entry{"manager": {"manager", 0o755, []byte(program)}}, files, cmp.AllowUnexported(entry{})) {
			t.Errorf("%s: it holds something else than the program", p)
		}
	}
	if want := []platform{{"linux", "amd64"}, {"linux", "arm64"}}; len(images) != 2 || images[want[0]] == nil || images[want[1]] == nil {
		t.Errorf("there are images for %v, want %v", slices.Collect(maps.Keys(images)), want)
	}
}

func TestNotes(t *testing.T) {
	const changelog = "# Changelog\n\nText.\n\n## [Unreleased]\n\n- New.\n\n## [1.2.3] - 2026-11-21\n\n### Added\n\n- All.\n\n## [1.2.2] - 2026-11-20\n\n- Old: [a](docs/a.md), [b](https://example.org/b).\n\n[1.2.3]: https://example.org\n"
	for name, c := range map[string]struct {
		version, want, err string
		why                string
	}{
		"released":          {version: "v1.2.3", want: "### Added\n\n- All.\n", why: "its own section, without links"},
		"last":              {version: "v1.2.2", want: "- Old: [a](https://github.com/phasegate/phasegate/blob/0123/docs/a.md), [b](https://example.org/b).\n", why: "links at the end belong to no section, and no page of a release is beside docs"},
		"pseudo":            {version: "v1.2.4-0.20261121104217-0123456789ab", want: "- New.\n", why: "nobody named that version"},
		"pseudo of nothing": {version: "v0.0.0-20261121104217-0123456789ab-dirty", want: "- New.\n", why: "the first commits have no tag"},
		"forgotten":         {version: "v1.3.0", err: "CHANGELOG.md tells nothing under ## [1.3.0]: move there what is under [Unreleased]", why: "a release says what it brings"},
		"prefix":            {version: "v1.2.3-rc.1", err: "CHANGELOG.md tells nothing under ## [1.2.3-rc.1]: move there what is under [Unreleased]", why: "1.2.3 is another version"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := notes(changelog, edition{version: c.version, commit: "0123"})
			if got != c.want && err == nil || fmt.Sprint(err) != c.err && err != nil || (err == nil) != (c.err == "") {
				t.Errorf("%s: got %q, %v; want %q, %s", c.why, got, err, c.want, c.err)
			}
		})
	}
}
