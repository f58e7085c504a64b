// Package config reads the file that tells a proxy what to run.
//
// Its errors name the file, the field and what to do. It knows no cluster and no
// command line.
package config

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/phasegate/phasegate/api/toolhive/runconfig"
	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/controllers/mcpserver/freeze"
)

// Paths are where the file is looked for; the first that exists is taken.
func Paths() []string {
	return []string{"/etc/runconfig/" + v1beta1.RunConfigFile, "/etc/toolhive/" + v1beta1.RunConfigFile, "./" + v1beta1.RunConfigFile}
}

// Loaded is a file that was read and understood.
type Loaded struct {
	// Run has all defaults, and the generation of the proxy's own pod.
	Run *runconfig.RunConfig
	// Path is where it was found.
	Path string
	// SessionTTL is the duration in Run, 0 if it has none.
	SessionTTL time.Duration
	// ReadTime is how long a request may take to come in, 0 where Run does not say.
	ReadTime time.Duration
	// Stale says that the file is newer than the proxy's pod.
	Stale bool
	// Warning is what was passed over; empty for nothing.
	Warning string
}

// Load reads the first of paths that exists. generation is the value of the
// variable v1beta1.EnvGeneration. It may be called again, to see the file as it is
// by then.
func Load(paths []string, generation string) (*Loaded, error) {
	data, path, err := find(paths)
	if err != nil {
		return nil, err
	}
	l := &Loaded{Run: &runconfig.RunConfig{}, Path: path}
	if err := json.Unmarshal(data, l.Run); err != nil {
		return nil, fmt.Errorf("%s: %w", path, explain(data, err))
	}
	fillIn(l.Run)
	protecting, others := unknown(data)
	if err := errors.Join(l.check(), unread(path, protecting)); err != nil {
		return nil, err
	}
	inFile := l.Run.MCPServerGeneration
	l.Run.MCPServerGeneration, l.Warning = freeze.Override(inFile, generation)
	if err := unread(path, others); err != nil {
		l.Warning = strings.TrimPrefix(l.Warning+"; "+err.Error(), "; ")
	}
	l.Stale = inFile > l.Run.MCPServerGeneration
	return l, nil
}

func find(paths []string) (data []byte, path string, err error) {
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, path, fmt.Errorf("read the run configuration: %w", err)
		}
		return data, path, nil
	}
	return nil, "", fmt.Errorf("no run configuration: looked for %s: mount the ConfigMap NAME-runconfig of the MCPServer at %s",
		strings.Join(paths, ", "), strings.TrimSuffix(paths[0], "/"+v1beta1.RunConfigFile))
}

// unknown are the fields that this proxy does not know: a newer manager has written them, or another project. Without
// those whose names say that they protect, clients would get what the file keeps from them.
func unknown(data []byte) (protecting, others []string) {
	var fields map[string]json.RawMessage
	_ = json.Unmarshal(data, &fields) // it was read before
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		switch _, known := reflect.TypeFor[runconfig.RunConfig]().FieldByNameFunc(func(field string) bool { return isField(field, name) }); {
		case known:
		case v1beta1.MayProtect(name):
			protecting = append(protecting, name)
		default:
			others = append(others, name)
		}
	}
	return protecting, others
}

// isField tells whether JSON of a name is of a field, as encoding/json has it.
func isField(field, name string) bool {
	f, _ := reflect.TypeFor[runconfig.RunConfig]().FieldByName(field)
	tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return strings.EqualFold(tag, name)
}

func unread(path string, fields []string) error {
	if len(fields) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %s: this proxy does not know it: use the image of the manager's release", path, strings.Join(fields, ", "))
}

// explain says where in data a decoding error is.
func explain(data []byte, err error) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		before := data[:min(int(syntax.Offset), len(data))]
		return fmt.Errorf("line %d: not JSON: %w", 1+bytes.Count(before, []byte("\n")), err)
	case errors.As(err, &kind):
		return fmt.Errorf("%s: is a JSON %s, must fit %s: correct it where the file is made", cmp.Or(kind.Field, "the whole file"), kind.Value, kind.Type)
	}
	return err
}

func fillIn(r *runconfig.RunConfig) {
	if r.Port == 0 {
		r.Port = 8080
	}
	switch {
	case r.Transport != v1beta1.TransportStdio:
		r.ProxyMode = r.Transport // the proxy speaks what the server does
		if r.TargetPort == 0 {
			r.TargetPort = v1beta1.DefaultMCPPort
		}
	case r.ProxyMode == "":
		r.ProxyMode = v1beta1.TransportStreamableHTTP
	}
}

// check reads the durations of the file, and tells what in it cannot be run.
func (l *Loaded) check() error {
	r := l.Run
	var ttlErr, readErr error
	l.SessionTTL, ttlErr = duration(r.SessionTTL)
	l.ReadTime, readErr = duration(r.ProxyReadTimeout)
	transports := []string{v1beta1.TransportStdio, v1beta1.TransportSSE, v1beta1.TransportStreamableHTTP}
	var errs []error
	for _, field := range []struct {
		name  string
		value any
		ok    bool
		want  string
	}{
		{"name", r.Name, r.Name != "", "the name of the MCPServer"},
		{"transport", r.Transport, slices.Contains(transports, r.Transport), "stdio, sse or streamable-http"},
		// That of another transport is the transport.
		{"proxy_mode", r.ProxyMode, r.Transport != v1beta1.TransportStdio || slices.Contains(transports[1:], r.ProxyMode), "sse or streamable-http"},
		{"port", r.Port, isPort(r.Port), "a port, 1 to 65535"},
		{"target_port", r.TargetPort, r.TargetPort == 0 || isPort(r.TargetPort), "a port, 1 to 65535"},
		{"max_request_body_size", r.MaxRequestBodySize, r.MaxRequestBodySize >= 0, "a number of bytes"},
		{"session_ttl", r.SessionTTL, ttlErr == nil && l.SessionTTL >= 0, "a duration such as 2h"},
		{"proxy_read_timeout", r.ProxyReadTimeout, readErr == nil && l.ReadTime >= 0, "a duration such as 30s"},
	} {
		if !field.ok {
			errs = append(errs, fmt.Errorf("%s: %s: is %#v, must be %s: correct it where the file is made", l.Path, field.name, field.value, field.want))
		}
	}
	if o := r.Owner; o == nil || slices.Contains([]string{o.APIVersion, o.Kind, o.Name, o.UID}, "") {
		errs = append(errs, fmt.Errorf("%s: owner: must have apiVersion, kind, name and uid: the operator of this project writes them", l.Path))
	}
	return errors.Join(errs...)
}

// duration is 0 where nothing is said.
func duration(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	return time.ParseDuration(text)
}

func isPort(n int32) bool { return n >= 1 && n <= 65535 }
