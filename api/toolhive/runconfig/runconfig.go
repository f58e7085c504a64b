// Package runconfig is the file that the operator hands to a proxy: what to run,
// how to reach it, what to offer to clients. The names are those of the peer's
// file, of which this is the part that this project uses. It holds data only.
package runconfig

// SchemaVersion is that of the files that are written.
const SchemaVersion = "v0.1.0"

// MaxRequestBody is how long a request to the proxy of this project may be at most, in bytes,
// whatever is asked for: its memory is bounded.
const MaxRequestBody = 24 << 20

// RunConfig is the content of runconfig.json. The image and the pod template are
// arguments of the proxy instead: the file changes under a running pod.
type RunConfig struct {
	SchemaVersion string `json:"schema_version"`
	// MCPServerGeneration is the metadata.generation at which the content changed
	// last; 0 switches the apply gate off.
	MCPServerGeneration int64  `json:"mcpserver_generation,omitempty"`
	Name                string `json:"name"`
	// Image is for people: the proxy takes that of its arguments.
	Image         string   `json:"image,omitempty"`
	CmdArgs       []string `json:"cmd_args,omitempty"`
	ContainerName string   `json:"container_name,omitempty"`
	BaseName      string   `json:"base_name,omitempty"`
	Transport     string   `json:"transport"`
	// ProxyMode is what clients speak; with an HTTP transport it is the transport.
	ProxyMode string `json:"proxy_mode,omitempty"`
	// Host and Port are where the proxy listens.
	Host string `json:"host,omitempty"`
	Port int32  `json:"port,omitempty"`
	// TargetHost and TargetPort are where a backend with an HTTP transport listens.
	// Without a host it is the backend's Service.
	TargetHost        string            `json:"target_host,omitempty"`
	TargetPort        int32             `json:"target_port,omitempty"`
	EnvVars           map[string]string `json:"env_vars,omitempty"`
	ContainerLabels   map[string]string `json:"container_labels,omitempty"`
	TrustProxyHeaders bool              `json:"trust_proxy_headers,omitempty"`
	EndpointPrefix    string            `json:"endpoint_prefix,omitempty"`
	// MaxRequestBodySize is how long a request may be, in bytes; 8 MiB if 0.
	MaxRequestBodySize int64 `json:"max_request_body_size,omitempty"`
	// ProxyReadTimeout is how long a request may take to come in, as a Go duration; 30s if empty.
	ProxyReadTimeout string `json:"proxy_read_timeout,omitempty"`
	// SessionTTL is how long an idle session is kept, as a Go duration; 2h if empty.
	SessionTTL    string         `json:"session_ttl,omitempty"`
	ScalingConfig *ScalingConfig `json:"scaling_config,omitempty"`
	// Owner is the MCPServer, which is to own what the proxy makes. It is not in
	// the peer's file; without it nothing is made.
	Owner *Owner `json:"owner,omitempty"`
}

// ScalingConfig says how many pods the backend has; nil leaves it to others.
type ScalingConfig struct {
	BackendReplicas *int32 `json:"backend_replicas,omitempty"`
}

// Owner is what an owner reference says of the MCPServer.
type Owner struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	UID        string `json:"uid"`
}
