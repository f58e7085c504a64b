package release

import (
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDescribe(t *testing.T) {
	revision := []debug.BuildSetting{{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "true"}}
	for name, c := range map[string]struct {
		version, commit string
		info            debug.BuildInfo
		want            Info
		why             string
	}{
		"released": {
			version: "v0.1.0", commit: "123",
			info: debug.BuildInfo{Main: debug.Module{Version: "v9.9.9"}, Settings: revision},
			want: Info{Version: "v0.1.0", Commit: "123"},
			why:  "what was stamped is what was meant",
		},
		"go install": {
			info: debug.BuildInfo{Main: debug.Module{Version: "v0.1.0"}},
			want: Info{Version: "v0.1.0"},
			why:  "nobody stamps it, but the go command knows what it fetched",
		},
		"go build in a clone with changes": {
			info: debug.BuildInfo{Main: debug.Module{Version: "v0.0.0-20261121104217-abc+dirty"}, Settings: revision},
			want: Info{Version: "v0.0.0-20261121104217-abc-dirty", Commit: "abc"},
			why:  "a + would make an image name that no registry takes",
		},
		"go run": {
			info: debug.BuildInfo{Main: debug.Module{Version: "(devel)"}},
			want: Info{Version: "dev"},
			why:  "(devel) is no version",
		},
		"no build info": {want: Info{Version: "dev"}, why: "a program always says something"},
	} {
		t.Run(name, func(t *testing.T) {
			c.want.Go, c.want.Platform = runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH
			if diff := cmp.Diff(c.want, describe(c.version, c.commit, &c.info)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
		})
	}
}

func TestImage(t *testing.T) {
	for version, want := range map[string]string{
		"v0.1.0": "ghcr.io/phasegate/proxyrunner:0.1.0", // as the chart has it
		"dev":    "ghcr.io/phasegate/proxyrunner:dev",
	} {
		if got := (Info{Version: version}).Image("proxyrunner"); got != want {
			t.Errorf("the image of %s is %s, want %s", version, got, want)
		}
	}
}
