package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/uuid"
)

// supplied are the settings of a build that its bill of materials names.
var supplied = []string{"GOOS", "GOARCH", "CGO_ENABLED", "-trimpath", "-tags"}

// bill writes the software bill of materials of a program, in CycloneDX, from what
// the linker noted in it: it cannot list anything that is not in the program.
func bill(path string, e edition) ([]byte, error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the build info of %s: %w", path, err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	bom := materials(info, sum(data), e)
	var out bytes.Buffer
	encoder := cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON).SetPretty(true).SetEscapeHTML(false)
	if err := encoder.EncodeVersion(bom, cdx.SpecVersion1_6); err != nil {
		return nil, fmt.Errorf("write the bill of materials of %s: %w", path, err)
	}
	return out.Bytes(), nil
}

func materials(info *debug.BuildInfo, hash string, e edition) *cdx.BOM {
	name := info.Path[strings.LastIndex(info.Path, "/")+1:]
	program := cdx.Component{
		BOMRef:     info.Path,
		Type:       cdx.ComponentTypeApplication,
		Name:       name,
		Version:    e.version,
		PackageURL: fmt.Sprintf("pkg:golang/%s@%s#%s", info.Main.Path, e.version, strings.TrimPrefix(info.Path, info.Main.Path+"/")),
		Hashes:     &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hash}},
		Licenses:   &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}},
		Properties: settings(info),
		ExternalReferences: &[]cdx.ExternalReference{
			{Type: cdx.ERTypeVCS, URL: "https://" + info.Main.Path, Comment: "commit " + e.commit},
		},
	}
	components := []cdx.Component{module("std", strings.TrimPrefix(info.GoVersion, "go"), "")}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		components = append(components, module(m.Path, m.Version, m.Sum))
	}
	refs := make([]string, 0, len(components))
	for _, c := range components {
		refs = append(refs, c.BOMRef)
	}
	bom := cdx.NewBOM()
	// The same program has the same bill, so its number is made from its hash.
	bom.SerialNumber = uuid.NewSHA1(uuid.NameSpaceURL, []byte(info.Path+"#"+hash)).URN()
	bom.Metadata = &cdx.Metadata{Timestamp: e.at.Format(time.RFC3339), Component: &program}
	bom.Components = &components
	// A program does not say which module needs which, only that it holds them.
	bom.Dependencies = &[]cdx.Dependency{{Ref: info.Path, Dependencies: &refs}}
	return bom
}

// module is a Go module; its checksum is the one of go.sum, which is no hash of a file.
func module(path, version, checksum string) cdx.Component {
	url := "pkg:golang/" + path + "@" + version
	c := cdx.Component{BOMRef: url, Type: cdx.ComponentTypeLibrary, Name: path, Version: version, PackageURL: url, Scope: cdx.ScopeRequired}
	if checksum != "" {
		c.Properties = &[]cdx.Property{{Name: "go.sum", Value: checksum}}
	}
	return c
}

func settings(info *debug.BuildInfo) *[]cdx.Property {
	values := map[string]string{}
	for _, s := range info.Settings {
		values[s.Key] = s.Value
	}
	properties := make([]cdx.Property, 0, len(supplied))
	for _, key := range supplied {
		properties = append(properties, cdx.Property{Name: "go.build." + strings.TrimPrefix(key, "-"), Value: values[key]})
	}
	return &properties
}

// sum is the SHA-256 of data in hexadecimal digits.
func sum(data []byte) string {
	hash := sha256.Sum256(data)
	return hex.EncodeToString(hash[:])
}
