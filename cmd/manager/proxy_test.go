package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/phasegate/phasegate/controllers/mcpserver"
)

func TestProxyFlags(t *testing.T) {
	type seen struct {
		Flavour mcpserver.Flavour
		Image   string
	}
	for name, c := range map[string]struct {
		why  string
		args []string
		want seen
		// says is in the error.
		says string
	}{
		"none":                  {why: "as before there was a choice", want: seen{mcpserver.Phasegate, "ours"}},
		"the image":             {why: "who gives it wants it", args: []string{"--toolhive-proxy-image=theirs"}, want: seen{mcpserver.ToolHive, "theirs"}},
		"both":                  {why: "said twice", args: []string{"--proxy=toolhive", "--toolhive-proxy-image=theirs"}, want: seen{mcpserver.ToolHive, "theirs"}},
		"ours all the same":     {why: "one flag goes back", args: []string{"--proxy=phasegate", "--toolhive-proxy-image=theirs"}, want: seen{mcpserver.Phasegate, "ours"}},
		"version":               {why: "a digest tells none", args: []string{"--toolhive-proxy-image=theirs@sha256:a", "--toolhive-proxy-version=v0.63.0"}, want: seen{mcpserver.ToolHive, "theirs@sha256:a"}},
		"no version":            {why: "a typing error", args: []string{"--toolhive-proxy-image=theirs", "--toolhive-proxy-version=new"}, want: seen{mcpserver.ToolHive, "theirs"}, says: "--toolhive-proxy-version"},
		"theirs without image":  {why: "no pod would start", args: []string{"--proxy=toolhive"}, want: seen{mcpserver.ToolHive, ""}, says: "--toolhive-proxy-image"},
		"one that is not known": {why: "a typing error", args: []string{"--proxy=thv"}, want: seen{"thv", "ours"}, says: "[phasegate toolhive]"},
	} {
		t.Run(name, func(t *testing.T) {
			var o options
			flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
			o.addFlags(flags)
			if err := flags.Parse(append([]string{"--proxy-image=ours"}, c.args...)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, seen{o.flavour(), o.imageOfProxies()}); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
			err := o.validate()
			if (err != nil) != (c.says != "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: error = %v, want %q in it", c.why, err, c.says)
			}
		})
	}
}
