// Package supportbundle collects what somebody needs who is to help from afar, into one archive:
// objects of ours, events, logs, the shape of what is installed. It changes nothing.
//
// Nothing secret goes in: Secrets are not read, values of environment variables, arguments
// and other people's annotations are left out, and looked for in all texts besides. Of
// Calico's objects it holds how many there are, and the names of those in conflict.
package supportbundle

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/cmd/internal/release"
	"github.com/phasegate/phasegate/fsm/printable"
)

// Options say what goes in.
type Options struct {
	Config *rest.Config
	Client client.Client
	// Migration is the only one of which the bundle is; empty: all.
	Migration string
	// RedactNames hashes the names of Calico's objects in conflict.
	RedactNames bool
	// CalicoNamespace is where Calico's components run, for the checks.
	CalicoNamespace string
}

// Bundle is files by path.
type Bundle struct {
	Files map[string][]byte
	// Missing says what could not be had: a bundle of a part is better than none.
	Missing []string
}

type collector struct {
	Options
	kube     kubernetes.Interface
	redactor *Redactor
	files    map[string]any // []byte for texts; anything else becomes JSON
	missing  []string
	// notServed are kinds that the API server does not serve: nobody has looked at their objects.
	notServed []string
}

// Collect reads the cluster. The error is about a cluster that cannot be reached at all.
func Collect(ctx context.Context, o Options) (*Bundle, error) {
	kube, err := kubernetes.NewForConfig(o.Config)
	if err != nil {
		return nil, fmt.Errorf("make the client: %w", err)
	}
	c := &collector{Options: o, kube: kube, redactor: NewRedactor(), files: map[string]any{}}
	server, err := kube.Discovery().ServerVersion()
	if err != nil {
		return nil, fmt.Errorf("ask the API server for its version: %w", err)
	}
	c.files["versions.json"] = map[string]any{"kubectl-phasegate": release.Current(), "kubernetes": server}
	for _, part := range []struct {
		what string
		read func(context.Context) error
	}{
		{"the migrations", c.migrations}, {"the MCP servers", c.servers}, {"the states", c.states}, {"the programs", c.programs}, {"events", c.events},
		{"the CRDs", c.crds}, {"the APIService", c.apiService}, {"admission policies", c.admission}, {"Calico's objects", c.calico}, {"the checks", c.checks},
	} {
		if err := part.read(ctx); err != nil {
			c.missing = append(c.missing, fmt.Sprintf("%s: %v", part.what, err))
		}
	}
	if len(c.notServed) > 0 {
		c.files["not-served.json"] = c.notServed
	}
	return c.bundle()
}

// bundle writes everything down. Texts come last, when all is known that they must not hold.
func (c *collector) bundle() (*Bundle, error) {
	b := &Bundle{Files: map[string][]byte{}}
	for name, value := range c.files {
		text, isText := value.([]byte)
		if !isText {
			var err error
			if text, err = json.MarshalIndent(value, "", "  "); err != nil {
				return nil, fmt.Errorf("write %s: %w", name, err)
			}
		}
		b.Files[printable.Line(name)] = []byte(printable.Text(string(c.redactor.Text(text))))
	}
	for _, missing := range c.missing {
		b.Missing = append(b.Missing, printable.Line(string(c.redactor.Text([]byte(missing)))))
	}
	if len(b.Missing) > 0 {
		text, err := json.MarshalIndent(b.Missing, "", "  ")
		if err != nil {
			return nil, fmt.Errorf("write missing.json: %w", err)
		}
		b.Files["missing.json"] = text
	}
	return b, nil
}

// Write makes a .tar.gz with everything under one directory. The same files at the same
// time make the same bytes.
func (b *Bundle) Write(to io.Writer, dir string, at time.Time) error {
	zipped := gzip.NewWriter(to)
	archive := tar.NewWriter(zipped)
	for _, name := range slices.Sorted(maps.Keys(b.Files)) {
		data := b.Files[name]
		head := &tar.Header{Name: dir + "/" + name, Mode: 0o600, Size: int64(len(data)), ModTime: at.Truncate(time.Second)}
		if err := archive.WriteHeader(head); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
		if _, err := archive.Write(data); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return errors.Join(archive.Close(), zipped.Close())
}
