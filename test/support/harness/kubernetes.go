package harness

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// The kinds of admission policies that Options.NoPolicies knows.
const (
	MutatingPolicies   = "MutatingAdmissionPolicy"
	ValidatingPolicies = "ValidatingAdmissionPolicy"
)

// policiesSince is the minor version of Kubernetes from which on v1 of a kind of policies is served.
var policiesSince = map[string]int{MutatingPolicies: 36, ValidatingPolicies: 30}

// NeedsKubernetes skips a test where the clusters that Start launches are older than 1.minor.
func NeedsKubernetes(t testing.TB, minor int, why string) {
	t.Helper()
	version, got, err := kubernetesOf("")
	if err != nil {
		t.Fatal(err)
	}
	if got < minor {
		t.Skipf("needs Kubernetes 1.%d or newer, and kube-apiserver in bin/tools is %s: %s", minor, version, why)
	}
}

// kubernetesOf asks kube-apiserver in dir, or in bin/tools if dir is empty, for its version.
func kubernetesOf(dir string) (version string, minor int, err error) {
	server, err := tool(dir, APIServer)
	if err != nil {
		return "", 0, err
	}
	said, err := exec.Command(server, "--version").Output()
	if err != nil {
		return "", 0, fmt.Errorf("ask %s for its version: %w", server, err)
	}
	version = strings.TrimPrefix(strings.TrimSpace(string(said)), "Kubernetes ")
	if _, err := fmt.Sscanf(version, "v1.%d.", &minor); err != nil {
		return "", 0, fmt.Errorf("ask %s for its version: it says %q: %w", server, said, err)
	}
	return version, minor, nil
}

// withoutPolicies are the flags with which an API server does not serve these kinds of policies. One that is older than
// a kind would refuse to start with flags for it.
func withoutPolicies(minor int, kinds ...string) []string {
	var plugins, resources []string
	for _, kind := range kinds {
		if minor < policiesSince[kind] {
			continue
		}
		plugins = append(plugins, kind)
		name := "admissionregistration.k8s.io/v1/" + strings.ToLower(strings.TrimSuffix(kind, "y"))
		resources = append(resources, name+"ies=false", name+"ybindings=false")
	}
	if plugins == nil {
		return nil
	}
	return []string{"--disable-admission-plugins=" + strings.Join(plugins, ","), "--runtime-config=" + strings.Join(resources, ",")}
}
