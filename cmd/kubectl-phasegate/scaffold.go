package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/phasegate/phasegate/cmd/kubectl-phasegate/internal/scaffold"
	"github.com/phasegate/phasegate/controllers/catalog"
	"github.com/phasegate/phasegate/fsm"
)

type scaffoldOptions struct {
	output        *format
	only, account string
	crds          []string
	clusterScoped bool
}

func scaffoldCommand(s streams) *cobra.Command {
	o := &scaffoldOptions{}
	cmd := &cobra.Command{
		Use:   "scaffold FILE",
		Short: "Print the CRD and the role that your machine file needs",
		Long: `Print what a cluster needs to run your machine file: a CRD of its kind, and a ClusterRole
with only what the machine needs, bound to the manager's account. Needs no cluster.

The CRD has the columns and the status that the manager writes. Its spec has the fields
that the file's expressions read, with types inferred from their use: complete it.

The role lists each permission with the steps that need it, limited to the object's name
where the file has one. If an expression gives the kind, a comment says so. After each
edit of the file, print the role again: --only=rbac.

Exit codes: 0 printed, 1 file refused, 2 error.`,
		Example: `  kubectl phasegate scaffold my/maintenance.yaml | kubectl apply -f -
  kubectl phasegate scaffold my/maintenance.yaml --only=rbac --crd my/crd.yaml`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return o.run(s, args[0]) },
	}
	f := cmd.Flags()
	o.output = formatFlag(cmd, "yaml", "json")
	f.StringVar(&o.only, "only", "", "print only crd or rbac")
	f.StringArrayVar(&o.crds, "crd", nil, "`FILE` or directory of CRDs with the plurals of kinds; others are guessed")
	f.BoolVar(&o.clusterScoped, "cluster-scoped", false, "make the kind cluster-scoped")
	f.StringVar(&o.account, "service-account", "phasegate-system/phasegate-custom", "the manager's account, as `NAMESPACE/NAME`")
	completeFlag(cmd, "only", "crd", "rbac")
	return cmd
}

func (o *scaffoldOptions) run(s streams, file string) error {
	options, err := o.options()
	if err != nil {
		return err
	}
	machine, err := chooseMachine(s, file)
	if err != nil {
		return err
	}
	if catalog.Compiled(machine.Name()) {
		return fmt.Errorf("machine %s has a controller of its own, whose CRD and roles are in the chart: name a file of your own", machine.Name())
	}
	var docs []string
	for _, part := range []struct {
		name string
		make func(*fsm.Machine, scaffold.Options) (string, error)
	}{{"crd", scaffold.CRD}, {"rbac", scaffold.Role}} {
		if o.only != "" && o.only != part.name {
			continue
		}
		text, err := part.make(machine, options)
		if err != nil {
			return err
		}
		docs = append(docs, text)
	}
	return o.print(s, strings.Join(docs, "---\n"))
}

// options are what the flags say of the cluster; an error is about a flag.
func (o *scaffoldOptions) options() (scaffold.Options, error) {
	namespace, name, _ := strings.Cut(o.account, "/")
	options := scaffold.Options{ClusterScoped: o.clusterScoped, Account: types.NamespacedName{Namespace: namespace, Name: name}}
	if err := o.output.check(); err != nil {
		return options, err
	}
	switch {
	case o.only != "" && o.only != "crd" && o.only != "rbac":
		return options, fmt.Errorf("--only %q: write crd or rbac", o.only)
	case namespace == "" || name == "":
		return options, fmt.Errorf("--service-account %q: write NAMESPACE/NAME", o.account)
	}
	var err error
	options.CRDs, err = readCRDs(o.crds)
	return options, err
}

// print writes the documents as they are, or as a list in JSON.
func (o *scaffoldOptions) print(s streams, text string) error {
	if o.output.value == "yaml" {
		_, err := fmt.Fprint(s.out, text)
		return err
	}
	var items []any
	for doc := range strings.SplitSeq(text, "\n---\n") {
		var item map[string]any
		if err := yaml.Unmarshal([]byte(doc), &item); err != nil {
			return err
		}
		items = append(items, item)
	}
	return writeJSON(s.out, map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
}
