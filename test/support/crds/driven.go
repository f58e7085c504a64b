package crds

import (
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// EnvPeers names the environment variable that, when it is not empty, makes Driven take the peers' own CRDs in place of ours:
// Calico's from the subfolder migration of CALICO_CRDS, ToolHive's from TOOLHIVE_CRDS. Where
// a directory is not given, ours stays.
const EnvPeers = "PEERS_CRDS"

// Driven are the CRDs of the chart in root/charts/phasegate, of the kinds that the managers
// drive and of MachineState.
func Driven(root string) (Set, error) {
	ours, err := ReadDir(filepath.Join(root, "charts", "phasegate", "files", "crds"))
	if err != nil || os.Getenv(EnvPeers) == "" {
		return Set{CRDs: ours}, err
	}
	return replaced(ours)
}

// Peers are those CRDs of Driven that a peer has, as it ships them; none without its
// directory.
func Peers() ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	for _, dir := range []string{sub(os.Getenv(EnvDir), "migration"), os.Getenv("TOOLHIVE_CRDS")} {
		if dir == "" {
			continue
		}
		found, err := ReadDir(dir)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

func sub(dir, name string) string {
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, name)
}

func replaced(ours []*unstructured.Unstructured) (Set, error) {
	theirs, err := Peers()
	if err != nil {
		return Set{}, err
	}
	if len(theirs) == 0 {
		return Set{}, fmt.Errorf("%s is set, but neither %s nor TOOLHIVE_CRDS is: set the directory of the peers' CRDs", EnvPeers, EnvDir)
	}
	byName := map[string]*unstructured.Unstructured{}
	for _, crd := range theirs {
		byName[crd.GetName()] = crd
	}
	set := Set{}
	for _, crd := range ours {
		if other := byName[crd.GetName()]; other != nil {
			crd = other
		}
		set.CRDs = append(set.CRDs, crd)
	}
	return set, nil
}
