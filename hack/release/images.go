package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	// registry is where images are published.
	registry = "ghcr.io/phasegate"
	// user of the containers, numeric so that the kubelet can tell that it is not root.
	user = "65532:65532"
)

// containers are the platforms that an image can be for.
func (d distribution) containers() []platform {
	return slices.DeleteFunc(slices.Clone(d.platforms), func(p platform) bool { return p.os != "linux" })
}

// images writes an image of each program for all platforms as an OCI layout, and
// the digests by which they can be pulled. No container engine takes part.
func (d distribution) images(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	var digests []string
	for program := range programs {
		index, err := d.index(program)
		if err != nil {
			return fmt.Errorf("make the image of %s: %w", program, err)
		}
		path, err := layout.Write(filepath.Join(dir, program), empty.Index)
		if err != nil {
			return err
		}
		tag := map[string]string{"org.opencontainers.image.ref.name": strings.TrimPrefix(d.version, "v")}
		if err := path.AppendIndex(index, layout.WithAnnotations(tag)); err != nil {
			return err
		}
		digest, err := index.Digest()
		if err != nil {
			return err
		}
		digests = append(digests, fmt.Sprintf("%s/%s:%s@%s\n", registry, program, strings.TrimPrefix(d.version, "v"), digest))
	}
	slices.Sort(digests)
	return d.write("images.txt", []byte(strings.Join(digests, "")))
}

// index is the image of a program for all platforms.
func (d distribution) index(program string) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range d.containers() {
		data, err := os.ReadFile(filepath.Join(d.built, p.String(), program))
		if err != nil {
			return nil, err
		}
		img, err := image(p, program, data, d.edition)
		if err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        img,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: p.os, Architecture: p.arch}},
		})
	}
	return index, nil
}

// image holds one file, the program: no shell, no libraries, no certificates (they
// are in the program), nothing to update but the program.
func image(p platform, program string, data []byte, e edition) (v1.Image, error) {
	files, err := packFiles([]entry{{program, 0o755, data}}, e.at)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(files)), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	base, err = mutate.ConfigFile(base, &v1.ConfigFile{
		OS: p.os, Architecture: p.arch, Created: v1.Time{Time: e.at},
		RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{User: user, WorkingDir: "/", Entrypoint: []string{"/" + program}, Labels: labels(program, e)},
	})
	if err != nil {
		return nil, err
	}
	return mutate.Append(base, mutate.Addendum{
		Layer:   layer,
		History: v1.History{Created: v1.Time{Time: e.at}, CreatedBy: "hack/release.sh"},
	})
}

// labels are those that the Dockerfile gives as well.
func labels(program string, e edition) map[string]string {
	const key = "org.opencontainers.image."
	return map[string]string{
		key + "title":       program,
		key + "description": programs[program],
		key + "source":      "https://github.com/phasegate/phasegate",
		key + "licenses":    "Apache-2.0",
		key + "version":     e.version,
		key + "revision":    e.commit,
	}
}
