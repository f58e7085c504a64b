package toolhive

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// Younger is the first release of which the source reads all those fields of a file that an older program ignores without
// a word.
const Younger = "v0.59.0"

// Program is what is known of the program that reads the file. The zero value is a program of an unknown version.
type Program struct {
	// version is nil if it is not known.
	version *version.Version
}

// ProgramOf is the program of an image: of the version said, or else of the one that is the image's tag. An image with
// another tag, such as latest, or with a digest only, is of an unknown version. The error is about said.
func ProgramOf(image, said string) (Program, error) {
	if said != "" {
		v, err := version.ParseSemantic(said)
		if err != nil {
			return Program{}, fmt.Errorf("%q is not a version: write one such as %s", said, Younger)
		}
		return Program{v}, nil
	}
	v, err := version.ParseSemantic(tagOf(image))
	if err != nil {
		return Program{}, nil
	}
	return Program{v}, nil
}

// tagOf is empty for an image without a tag.
func tagOf(image string) string {
	image, _, _ = strings.Cut(image, "@")
	name := image[strings.LastIndexByte(image, '/')+1:]
	_, tag, _ := strings.Cut(name, ":")
	return tag
}

// readsYounger tells whether the program reads what is younger than v0.44.0.
func (p Program) readsYounger() bool {
	return p.version != nil && p.version.AtLeast(version.MustParseSemantic(Younger))
}

// String is the version, or that it is not known.
func (p Program) String() string {
	if p.version == nil {
		return "unknown"
	}
	return "v" + p.version.String()
}

// tooOld is why a field is refused that the program may not read.
func (p Program) tooOld(what string) error {
	return fmt.Errorf("%s is read by proxyrunners from %s on, and the version of this one is %s: use the image of a newer one, or name its version with --toolhive-proxy-version (chart: toolhiveProxyImage.version), or remove the field", what, Younger, p)
}
