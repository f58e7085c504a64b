package main

import (
	"bytes"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"sigs.k8s.io/yaml"
)

// check reads a distribution back as those who download it would, and returns all
// that does not fit together: checksums, archives, bills, krew manifest, images.
func (d distribution) check() error {
	var wrong []error
	complain := func(err error) {
		if err != nil {
			wrong = append(wrong, err)
		}
	}
	complain(d.checkChecksums())
	packed := map[string]map[string]entry{}
	complain(d.each(func(p platform, program, _ string) error {
		name := p.archive(program, d.edition)
		f, err := os.Open(filepath.Join(d.dir, name))
		if err != nil {
			return err
		}
		defer f.Close() //nolint:errcheck // only read
		files, err := unpack(f)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		packed[name] = files
		complain(checkProgram(name, files[program], p))
		complain(d.checkBill(p.bill(program, d.edition), files[program]))
		return nil
	}))
	complain(d.checkManifest(packed))
	complain(d.checkImages(packed))
	return errors.Join(wrong...)
}

func (d distribution) checkChecksums() error {
	said, err := os.ReadFile(filepath.Join(d.dir, checksumsFile))
	if err != nil {
		return err
	}
	found, err := d.checksums()
	if err != nil {
		return err
	}
	of := slices.Collect(strings.Lines(found))
	var wrong []error
	for line := range strings.Lines(string(said)) {
		if !slices.Contains(of, line) {
			wrong = append(wrong, fmt.Errorf("%s does not fit the files: %s", checksumsFile, strings.TrimSpace(line)))
		}
	}
	if len(wrong) == 0 && string(said) != found {
		wrong = append(wrong, fmt.Errorf("%s does not list all files", checksumsFile))
	}
	return errors.Join(wrong...)
}

// checkProgram finds out whether the file can be run, on the platform that is promised.
func checkProgram(archive string, program entry, p platform) error {
	info, err := buildinfo.Read(bytes.NewReader(program.data))
	if err != nil {
		return fmt.Errorf("%s: the program in it: %w", archive, err)
	}
	set := map[string]string{}
	for _, s := range info.Settings {
		set[s.Key] = s.Value
	}
	if got := (platform{set["GOOS"], set["GOARCH"]}); got != p {
		return fmt.Errorf("%s: the program in it is for %s", archive, got)
	}
	if program.mode != 0o755 {
		return fmt.Errorf("%s: the program in it has the mode %o, not 755", archive, program.mode)
	}
	return nil
}

func (d distribution) checkBill(name string, program entry) error {
	data, err := os.ReadFile(filepath.Join(d.dir, name))
	if err != nil {
		return err
	}
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(bytes.NewReader(data), cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if got := (*bom.Metadata.Component.Hashes)[0].Value; got != sum(program.data) {
		return fmt.Errorf("%s is of another program than the one in the archive", name)
	}
	return nil
}

func (d distribution) checkManifest(packed map[string]map[string]entry) error {
	data, err := os.ReadFile(filepath.Join(d.dir, "phasegate.yaml"))
	if err != nil {
		return err
	}
	var m krewManifest
	if err := yaml.UnmarshalStrict(data, &m); err != nil {
		return fmt.Errorf("phasegate.yaml: %w", err)
	}
	wrong := krewRules(m)
	for _, p := range m.Spec.Platforms {
		name := path.Base(p.URI)
		archive, err := os.ReadFile(filepath.Join(d.dir, name))
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		if sum(archive) != p.SHA256 {
			wrong = append(wrong, fmt.Errorf("the sha256 of %s is another one", name))
		}
		for _, f := range p.Files {
			if _, ok := packed[name][f.From]; !ok {
				wrong = append(wrong, fmt.Errorf("%s is not in %s", f.From, name))
			}
		}
	}
	if err := errors.Join(wrong...); err != nil {
		return fmt.Errorf("phasegate.yaml: %w", err)
	}
	return nil
}

var (
	krewName    = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)
	krewVersion = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)
	hexDigits   = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// krewRules are what krew refuses a manifest for, and what its index asks for.
func krewRules(m krewManifest) []error {
	var wrong []error
	rule := func(ok bool, format string, args ...any) {
		if !ok {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	rule(m.APIVersion == "krew.googlecontainertools.github.com/v1alpha2" && m.Kind == "Plugin", "apiVersion %s and kind %s are not a plugin's", m.APIVersion, m.Kind)
	rule(krewName.MatchString(m.Metadata.Name), "the name %q is not lower-kebab", m.Metadata.Name)
	rule(krewVersion.MatchString(m.Spec.Version), "the version %q is not v and a semantic version", m.Spec.Version)
	rule(len(m.Spec.ShortDescription) > 0 && len(m.Spec.ShortDescription) <= 50, "the short description has %d characters, not 1 to 50", len(m.Spec.ShortDescription))
	rule(len(m.Spec.Platforms) > 0, "there are no platforms")
	seen := map[krewLabels]bool{}
	for i, p := range m.Spec.Platforms {
		rule(!seen[p.Selector.MatchLabels], "two platforms match %v", p.Selector.MatchLabels)
		seen[p.Selector.MatchLabels] = true
		rule(hexDigits.MatchString(p.SHA256), "platform %d: %q is no sha256", i, p.SHA256)
		transferred := false
		for _, f := range p.Files {
			transferred = transferred || f.From == p.Bin && f.To == "."
		}
		rule(p.Bin != "" && transferred, "platform %d: bin %q is not among the files", i, p.Bin)
	}
	return wrong
}

// checkImages looks whether each image is whole, and holds the archived program; a
// distribution may do without images.
func (d distribution) checkImages(packed map[string]map[string]entry) error {
	if _, err := os.Stat(filepath.Join(d.dir, "images")); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for program := range programs {
		images, _, err := readImages(filepath.Join(d.dir, "images", program))
		if err != nil {
			return fmt.Errorf("image of %s: %w", program, err)
		}
		for _, p := range d.containers() {
			if images[p] == nil {
				return fmt.Errorf("image of %s: there is none for %s", program, p)
			}
			files, err := contents(images[p])
			if err != nil {
				return fmt.Errorf("image of %s for %s: %w", program, p, err)
			}
			if !bytes.Equal(files[program].data, packed[p.archive(program, d.edition)][program].data) {
				return fmt.Errorf("image of %s for %s: it holds another program than the archive", program, p)
			}
		}
	}
	return nil
}

// readImages reads a layout back: the images in it by platform, and the digest under
// which all of them are pulled.
func readImages(dir string) (map[platform]v1.Image, v1.Hash, error) {
	root, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, v1.Hash{}, err
	}
	top, err := root.IndexManifest()
	if err != nil {
		return nil, v1.Hash{}, err
	}
	if len(top.Manifests) != 1 {
		return nil, v1.Hash{}, fmt.Errorf("the layout holds %d images, not 1", len(top.Manifests))
	}
	digest := top.Manifests[0].Digest
	index, err := root.ImageIndex(digest)
	if err != nil {
		return nil, digest, err
	}
	if err := validate.Index(index); err != nil {
		return nil, digest, err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, digest, err
	}
	read := map[platform]v1.Image{}
	for _, m := range manifest.Manifests {
		if read[platform{m.Platform.OS, m.Platform.Architecture}], err = index.Image(m.Digest); err != nil {
			return nil, digest, err
		}
	}
	return read, digest, nil
}

// contents are the files of an image, as a container would see them.
func contents(img v1.Image) (map[string]entry, error) {
	flat := mutate.Extract(img)
	defer flat.Close()
	return untar(flat)
}
