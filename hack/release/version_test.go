package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// checkout is a clone with one commit, of which the time and so the hash are known.
type checkout struct {
	t   *testing.T
	dir string
}

func newCheckout(t *testing.T) checkout {
	t.Helper()
	c := checkout{t, copied(t, func(path string) bool {
		return path == "hack/version.sh" || path == "hack/release.sh"
	})}
	c.write("charts/phasegate/Chart.yaml", "version: 0.1.0\nappVersion: 0.1.0\nimage: ghcr.io/phasegate/manager:0.1.0\n")
	c.git("init", "--quiet", "--initial-branch=main")
	c.commit()
	return c
}

func (c checkout) write(name, text string) {
	c.t.Helper()
	path := filepath.Join(c.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		c.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

func (c checkout) commit() {
	c.t.Helper()
	c.git("add", ".")
	c.git("-c", "user.name=n", "-c", "user.email=e", "commit", "--quiet", "--allow-empty", "--message=m")
}

func (c checkout) git(args ...string) string {
	c.t.Helper()
	out, err := c.run("", "git", args...)
	if err != nil {
		c.t.Fatalf("git %s: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(out)
}

// run runs a program in the checkout, with VERSION and without the user's settings.
func (c checkout) run(version, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(c.t.Context(), program, args...)
	cmd.Dir = c.dir
	cmd.Env = append(os.Environ(), "VERSION="+version, "GIT_CONFIG_GLOBAL=/dev/null", "DIRTY=",
		"GIT_AUTHOR_DATE=2023-11-14T22:13:20Z", "GIT_COMMITTER_DATE=2023-11-14T22:13:20Z", "TZ=Asia/Tokyo")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestVersion(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(c checkout)
		given   string
		want    string // HASH stands for the commit's
		why     string
	}{
		"never tagged": {want: "v0.0.0-20231114221320-HASH", why: "as the go command does"},
		"tagged":       {prepare: func(c checkout) { c.git("tag", "v0.1.0") }, want: "v0.1.0", why: "a release"},
		"after a tag": {
			prepare: func(c checkout) { c.git("tag", "v0.1.9"); c.commit() },
			want:    "v0.1.10-0.20231114221320-HASH", why: "v0.1.9-1-gHASH, as git describes it, would be older than v0.1.9",
		},
		"after a candidate": {
			prepare: func(c checkout) { c.git("tag", "v0.2.0-rc.1"); c.commit() },
			want:    "v0.2.0-rc.1.0.20231114221320-HASH", why: "later than the candidate, before v0.2.0",
		},
		"other tag": {prepare: func(c checkout) { c.git("tag", "demo") }, want: "v0.0.0-20231114221320-HASH", why: "not each tag is a version"},
		"changed": {
			prepare: func(c checkout) { c.git("tag", "v0.1.0"); c.write("new.go", "package new\n") },
			want:    "v0.1.0-dirty", why: "an untracked file is built as well",
		},
		"given": {given: "v1.0.0-rc.1", want: "v1.0.0-rc.1", why: "whoever builds from an archive says it"},
	} {
		t.Run(name, func(t *testing.T) {
			at := newCheckout(t)
			if c.prepare != nil {
				c.prepare(at)
			}
			hash := at.git("rev-parse", "HEAD")
			got, err := at.run(c.given, "hack/version.sh")
			want := "VERSION=" + strings.ReplaceAll(c.want, "HASH", hash[:12]) + "\nCOMMIT=" + hash + "\nSOURCE_DATE_EPOCH=1700000000\n"
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("%s: %v (-want +got):\n%s", c.why, err, diff)
			}
			version, _, _ := strings.Cut(strings.TrimPrefix(got, "VERSION="), "\n")
			if final := (edition{version: version}).final(); final != (name == "tagged" || name == "given") {
				t.Errorf("%s: that a person gave it is said to be %t", version, final)
			}
		})
	}
}

// TestReleaseRefuses before it builds anything.
func TestReleaseRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(c checkout)
		given   string
		want    string
		why     string
	}{
		"changes": {
			prepare: func(c checkout) { c.write("new.go", "package new\n") },
			want:    "hack/release.sh: the checkout has changes that are not committed (DIRTY=1 releases them all the same):\n?? new.go\n",
			why:     "nobody could make it again",
		},
		"chart": {
			prepare: func(c checkout) { c.git("tag", "v0.2.0") },
			want:    "hack/release.sh: charts/phasegate/Chart.yaml has another version than 0.2.0: change it, commit, tag again\n",
			why:     "a chart from the repository would pull the images of another release",
		},
		"images": {
			prepare: func(c checkout) {
				c.write("charts/phasegate/Chart.yaml", "version: 0.2.0\nappVersion: 0.2.0\nimage: ghcr.io/phasegate/manager:0.1.0\n")
				c.commit()
				c.git("tag", "v0.2.0")
			},
			want: "hack/release.sh: charts/phasegate/Chart.yaml names images of another release than 0.2.0:\nimage: ghcr.io/phasegate/manager:0.1.0\n",
			why:  "Artifact Hub scans the images that are named there",
		},
		"chart of a candidate": {
			given: "v0.1.0-rc.1",
			want:  "hack/release.sh: charts/phasegate/Chart.yaml has another version than 0.1.0-rc.1: change it, commit, tag again\n",
			why:   "a person named it, as a release",
		},
		"version": {
			given: "0.1.0",
			want:  "hack/version.sh: VERSION 0.1.0 is not one: give v1.2.3 or v1.2.3-rc.1\n",
			why:   "krew and Go ask for the v",
		},
	} {
		t.Run(name, func(t *testing.T) {
			at := newCheckout(t)
			if c.prepare != nil {
				c.prepare(at)
			}
			out, err := at.run(c.given, "hack/release.sh")
			if err == nil || !strings.HasSuffix(out, c.want) {
				t.Errorf("%s: got %v\n%swant\n%s", c.why, err, out, c.want)
			}
		})
	}
}
