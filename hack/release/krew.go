package main

import (
	"fmt"

	"sigs.k8s.io/yaml"
)

// downloads is where releases are published.
const downloads = "https://github.com/phasegate/phasegate/releases/download"

// The manifest of a plugin, as far as krew reads it and we need it.
type (
	krewManifest struct {
		APIVersion string       `json:"apiVersion"`
		Kind       string       `json:"kind"`
		Metadata   krewMetadata `json:"metadata"`
		Spec       krewSpec     `json:"spec"`
	}
	krewMetadata struct {
		Name string `json:"name"`
	}
	krewSpec struct {
		Version          string         `json:"version"`
		Homepage         string         `json:"homepage"`
		ShortDescription string         `json:"shortDescription"`
		Description      string         `json:"description"`
		Platforms        []krewPlatform `json:"platforms"`
	}
	krewPlatform struct {
		Selector krewSelector   `json:"selector"`
		URI      string         `json:"uri"`
		SHA256   string         `json:"sha256"`
		Bin      string         `json:"bin"`
		Files    []krewTransfer `json:"files"`
	}
	krewSelector struct {
		MatchLabels krewLabels `json:"matchLabels"`
	}
	krewLabels struct {
		OS   string `json:"os"`
		Arch string `json:"arch"`
	}
	krewTransfer struct {
		From string `json:"from"`
		To   string `json:"to"`
	}
)

// krew writes the manifest with which `kubectl krew install --manifest=phasegate.yaml`
// installs the plugin; sums has the SHA-256 of each archive by its name.
func krew(e edition, platforms []platform, sums map[string]string) ([]byte, error) {
	m := krewManifest{
		APIVersion: "krew.googlecontainertools.github.com/v1alpha2",
		Kind:       "Plugin",
		Metadata:   krewMetadata{Name: "phasegate"},
		Spec: krewSpec{
			Version:          e.version,
			Homepage:         "https://github.com/phasegate/phasegate",
			ShortDescription: "Check, explain and steer state machines",
			Description: `Checks, draws, explains and simulates the machine files of Phasegate's operator,
offline, and tells the objects that they drive what to do: approve, retry, restart.
Among them is the migration of a Calico datastore to native v3 resources.
`,
		},
	}
	for _, p := range platforms {
		archive := p.archive(plugin, e)
		hash, ok := sums[archive]
		if !ok {
			return nil, fmt.Errorf("write the krew manifest: there is no %s", archive)
		}
		m.Spec.Platforms = append(m.Spec.Platforms, krewPlatform{
			Selector: krewSelector{MatchLabels: krewLabels{OS: p.os, Arch: p.arch}},
			URI:      downloads + "/" + e.version + "/" + archive,
			SHA256:   hash,
			Bin:      plugin,
			Files:    []krewTransfer{{From: plugin, To: "."}, {From: "LICENSE", To: "."}},
		})
	}
	return yaml.Marshal(m)
}
