// Package release tells which release of Phasegate a program is, for --version,
// bug reports and the names of images. It knows nothing of what the program does.
package release

import (
	"runtime"
	"runtime/debug"
	"strings"
)

// Stamped by hack/build.sh; empty in a program that was built in another way.
var version, commit string

// unknown is the version of a program that was built from a working tree.
const unknown = "dev"

// Info names a build: the same Info, the same sources and Go version.
type Info struct {
	// Version is that of the release, such as v0.1.0, or "dev".
	Version string `json:"version"`
	// Commit is the git commit of the sources; empty when nobody noted it.
	Commit string `json:"commit,omitempty"`
	// Go is the version of the compiler, such as go1.26.8.
	Go string `json:"go"`
	// Platform is OS/architecture.
	Platform string `json:"platform"`
}

// Current returns the Info of the running program. It cannot fail, and always
// returns the same.
func Current() Info {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return describe(version, commit, info)
}

// describe falls back on what the go command wrote down by itself: the version
// of `go install …@v0.1.0`, the commit of a build in a clone.
func describe(version, commit string, info *debug.BuildInfo) Info {
	if version == "" && info.Main.Version != "(devel)" {
		// A + may not stand in the tag of an image, which the version becomes.
		version = strings.ReplaceAll(info.Main.Version, "+", "-")
	}
	if version == "" {
		version = unknown
	}
	for _, setting := range info.Settings {
		if commit == "" && setting.Key == "vcs.revision" {
			commit = setting.Value
		}
	}
	return Info{Version: version, Commit: commit, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
}

// Image names the image of another program of the same release; its tag is the
// version as charts write it, without the v.
func (i Info) Image(program string) string {
	return "ghcr.io/phasegate/" + program + ":" + strings.TrimPrefix(i.Version, "v")
}
