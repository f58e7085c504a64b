package calico

import (
	"context"
	"fmt"
	"regexp"
	"strings"
)

// Calicoctl runs it as the holder of a kubeconfig, and answers what it printed. group is CALICO_API_GROUP; empty: it asks
// discovery.
func (r Release) Calicoctl(ctx context.Context, kubeconfig, group string, args ...string) (string, error) {
	env := datastore(kubeconfig)
	if group != "" {
		env = append(env, "CALICO_API_GROUP="+group)
	}
	cmd, err := r.Command(ctx, Calicoctl, env, args...)
	if err != nil {
		return "", err
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("calicoctl %s: %w:\n%s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// ofIPAM are the lines of `calicoctl ipam check` that tell of IPAM alone. Others tell of nodes and pods.
var ofIPAM = regexp.MustCompile(`^(Found \d+ IPAM blocks|IPAM blocks record|Found \d+ active IP pools|Found \d+ IPs that are allocated|Found \d+ handles|Found \d+ invalid| IPAM block )`)

// IPAMFindings are the lines of what `ipam check` printed that tell of IPAM alone.
func IPAMFindings(printed string) []string {
	var found []string
	for line := range strings.SplitSeq(printed, "\n") {
		if ofIPAM.MatchString(line) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}
