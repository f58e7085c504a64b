package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/controllers/datastoremigration"
	"github.com/phasegate/phasegate/fsm/show/graph"
)

// cluster is where live objects are; its flags are those of kubectl.
type cluster struct {
	flags *genericclioptions.ConfigFlags
	all   *pflag.FlagSet
	// limit bounds each request; 0 is none but that of --request-timeout.
	limit time.Duration
	// warned are the machines that another one is taken for, and of which that was said.
	warned []string
}

// clusterFlags gives a command all flags by which kubectl finds a cluster, and acts
// as somebody.
func clusterFlags(cmd *cobra.Command) *cluster {
	c := &cluster{flags: genericclioptions.NewConfigFlags(false), all: pflag.NewFlagSet("", pflag.ContinueOnError)}
	c.flags.AddFlags(c.all)
	c.all.VisitAll(func(f *pflag.Flag) {
		f.Annotations = map[string][]string{kubectlsOwn: {"true"}}
		cmd.Flags().AddFlag(f)
	})
	return c
}

// clusterCommand stands for all commands that read a cluster: the help of the root names
// their flags, once for all.
func clusterCommand() *cobra.Command {
	cmd := &cobra.Command{}
	clusterFlags(cmd)
	return cmd
}

// kubectlsOwn marks the flags that every user of kubectl knows: the help of the root names
// them and leaves the rest to kubectl.
const kubectlsOwn = "phasegate.dev/kubectl"

const usageTemplate = `Usage:{{if .Runnable}}
  {{.UseLine}}{{end}}{{if .HasAvailableSubCommands}}
  {{.CommandPath}} [command]{{end}}{{if .HasExample}}

Examples:
{{.Example}}{{end}}{{if .HasAvailableSubCommands}}{{$all := .Commands}}{{range .Groups}}{{$group := .ID}}

{{.Title}}{{range $all}}{{if and .IsAvailableCommand (eq .GroupID $group)}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}

Other commands:{{range .Commands}}{{if and .IsAvailableCommand (eq .GroupID "")}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}{{if .HasAvailableLocalFlags}}

Flags:
{{(ownFlags .).FlagUsages | trimTrailingWhitespaces}}{{end}}{{if kubectlFlags .}}

Flags of kubectl: see kubectl phasegate --help.{{end}}{{if not .HasParent}}

Flags of kubectl, for commands that read a cluster (see kubectl options):
{{kubectlFlags clusterCommand}}{{end}}{{if .HasAvailableSubCommands}}

Use "{{.CommandPath}} [command] --help" for more about a command.{{end}}
`

func init() {
	cobra.AddTemplateFunc("ownFlags", ownFlags)
	cobra.AddTemplateFunc("kubectlFlags", kubectlFlags)
	cobra.AddTemplateFunc("clusterCommand", clusterCommand)
}

func isKubectls(f *pflag.Flag) bool {
	return f.Annotations[kubectlsOwn] != nil
}

func ownFlags(cmd *cobra.Command) *pflag.FlagSet {
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if !isKubectls(f) {
			own.AddFlag(f)
		}
	})
	return own
}

func kubectlFlags(cmd *cobra.Command) string {
	var names []string
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if isKubectls(f) {
			names = append(names, "--"+f.Name)
		}
	})
	if names == nil {
		return ""
	}
	return strings.Join(graph.Wrap(strings.Join(names, " "), " ", " ", 88), "\n")
}

// connect answers a client, and a mapper that knows short names as kubectl does. What
// the cluster serves is asked each time: a migration changes it.
func (c *cluster) connect() (client.Client, meta.RESTMapper, error) {
	cfg, err := c.rest()
	if err != nil {
		return nil, nil, err
	}
	found, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, nil, err
	}
	cached := memory.NewMemCacheClient(found)
	mapper := restmapper.NewShortcutExpander(restmapper.NewDeferredDiscoveryRESTMapper(cached), cached, nil)
	objects, err := client.New(cfg, client.Options{Mapper: mapper, Scheme: datastoremigration.NewScheme()})
	return objects, mapper, err
}

func (c *cluster) rest() (*rest.Config, error) {
	cfg, err := c.flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("find a cluster: %w: give --kubeconfig", err)
	}
	cfg.UserAgent = "kubectl-phasegate/" + version
	if c.limit > 0 {
		cfg.Timeout = c.limit
	}
	return cfg, nil
}

// namespace is that of the flag, else of the context.
func (c *cluster) namespace() (string, error) {
	name, _, err := c.flags.ToRawKubeConfigLoader().Namespace()
	return name, err
}

// only is the namespace of the flag; empty where all are meant.
func (c *cluster) only() string { return *c.flags.Namespace }

// notRepeated are flags that commands which are shown leave out: the namespace is that of the
// object, the others are secrets, or say nothing of the cluster.
var notRepeated = []string{"namespace", "token", "password", "request-timeout", "cache-dir", "disable-compression"}

// given are the flags that the user gave and that another command for the same cluster needs,
// as a shell reads them.
func (c *cluster) given() string {
	var words []string
	c.all.VisitAll(func(f *pflag.Flag) {
		if !f.Changed || slices.Contains(notRepeated, f.Name) {
			return
		}
		values := []string{f.Value.String()}
		if list, isList := f.Value.(pflag.SliceValue); isList {
			values = list.GetSlice()
		}
		for _, value := range values {
			words = append(words, quote("--"+f.Name+"="+value))
		}
	})
	return strings.Join(words, " ")
}

// plain is what a shell leaves as it is.
var plain = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

func quote(word string) string {
	if plain.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

func quoted(words []string) (all []string) {
	for _, word := range words {
		all = append(all, quote(word))
	}
	return all
}
