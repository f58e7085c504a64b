package mcpserver

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/phasegate/phasegate/api/toolhive/runconfig"
	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
)

// runConfig is what the proxy is told of a server, without the generation. It names
// no host, so that the proxy listens wherever its pod has an address, IPv4 or IPv6.
func runConfig(srv *server) *runconfig.RunConfig {
	s := &srv.Spec
	rc := &runconfig.RunConfig{
		SchemaVersion: runconfig.SchemaVersion,
		Name:          srv.Name, ContainerName: srv.Name, BaseName: srv.Name,
		Image:     s.Image,
		CmdArgs:   s.Args,
		Transport: transport(s),
		ProxyMode: proxyMode(s),
		Port:      proxyPort(s),
		EnvVars:   map[string]string{"MCP_TRANSPORT": transport(s)},
		ContainerLabels: map[string]string{
			"toolhive": "true", v1beta1.LabelName: srv.Name, "toolhive-basename": srv.Name, "toolhive-transport": transport(s),
		},
		TrustProxyHeaders: s.TrustProxyHeaders,
		EndpointPrefix:    s.EndpointPrefix,
		// How long, and how slow, a request may be.
		MaxRequestBodySize: s.MaxRequestBodySize,
		ProxyReadTimeout:   s.ProxyReadTimeout,
		Owner: &runconfig.Owner{
			APIVersion: v1beta1.GroupVersion.String(), Kind: "MCPServer", Name: srv.Name, UID: string(srv.UID),
		},
	}
	if s.BackendReplicas != nil {
		rc.ScalingConfig = &runconfig.ScalingConfig{BackendReplicas: s.BackendReplicas}
	}
	if rc.Transport != v1beta1.TransportStdio {
		rc.TargetPort = cmp.Or(s.MCPPort, v1beta1.DefaultMCPPort)
		port := strconv.Itoa(int(rc.TargetPort))
		rc.EnvVars["MCP_PORT"], rc.EnvVars["FASTMCP_PORT"] = port, port
	}
	for _, e := range s.Env {
		rc.EnvVars[e.Name] = e.Value
	}
	return rc
}

func transport(s *v1beta1.MCPServerSpec) string {
	return cmp.Or(s.Transport, v1beta1.TransportStdio)
}

// proxyMode is what clients speak: what the server does, unless that is stdio.
func proxyMode(s *v1beta1.MCPServerSpec) string {
	if transport(s) != v1beta1.TransportStdio {
		return s.Transport
	}
	return cmp.Or(s.ProxyMode, v1beta1.TransportStreamableHTTP)
}

func proxyPort(s *v1beta1.MCPServerSpec) int32 { return cmp.Or(s.ProxyPort, 8080) }

// checksumOf changes with all that a proxy must be started anew for: not with the
// generation, which moves with any field of the spec, not with the number of
// backend pods, which scaleBackend sees to, and not with the owner, which never
// changes.
func checksumOf(rc *runconfig.RunConfig) (string, error) {
	content := *rc
	content.MCPServerGeneration, content.ScalingConfig, content.Owner = 0, nil, nil
	return sumOf(content)
}

// sumOf is that of some content as JSON.
func sumOf(content any) (string, error) {
	data, err := json.Marshal(content)
	if err != nil {
		return "", fmt.Errorf("encode %s: %w", v1beta1.RunConfigFile, err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}

// configMap holds the file that the proxy reads.
func configMap(srv *server, rc any, checksum string) (*corev1.ConfigMap, error) {
	data, err := json.MarshalIndent(rc, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", v1beta1.RunConfigFile, err)
	}
	m := &corev1.ConfigMap{ObjectMeta: objectMeta(srv, v1beta1.RunConfigName(srv.Name))}
	m.Labels = map[string]string{
		v1beta1.LabelName:                 srv.Name,
		"toolhive.stacklok.io/component":  "run-config",
		"toolhive.stacklok.io/mcp-server": srv.Name,
		"toolhive.stacklok.io/managed-by": "toolhive-operator",
	}
	m.Annotations = map[string]string{v1beta1.AnnotationContentChecksum: checksum}
	m.Data = map[string]string{v1beta1.RunConfigFile: string(data)}
	return m, nil
}
