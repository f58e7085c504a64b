package toolhive

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/phasegate/phasegate/api/toolhive/runconfig"
	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
)

// host is where the program listens: it does not understand an empty one.
const host = "0.0.0.0"

// RunConfig is the content of the program's runconfig.json: what every proxy is
// told, and what only this one understands.
type RunConfig struct {
	runconfig.RunConfig
	PermissionProfile  *PermissionProfile `json:"permission_profile"`
	Volumes            []string           `json:"volumes,omitempty"`
	OIDC               *OIDC              `json:"oidc_config,omitempty"`
	CABundle           string             `json:"thv_ca_bundle,omitempty"`
	JWKSAuthTokenFile  string             `json:"jwks_auth_token_file,omitempty"`
	TokenExchange      *TokenExchange     `json:"token_exchange_config,omitempty"`
	AuthServer         map[string]any     `json:"embedded_auth_server_config,omitempty"`
	Authz              json.RawMessage    `json:"authz_config,omitempty"`
	Audit              *Audit             `json:"audit_config,omitempty"`
	Telemetry          *Telemetry         `json:"telemetry_config,omitempty"`
	RateLimit          *rateLimits        `json:"rate_limit_config,omitempty"`
	RateLimitNamespace string             `json:"rate_limit_namespace,omitempty"`
	ToolsFilter        []string           `json:"tools_filter,omitempty"`
	ToolsOverride      map[string]Tool    `json:"tools_override,omitempty"`
	ValidatingWebhooks []Webhook          `json:"validating_webhooks,omitempty"`
	MutatingWebhooks   []Webhook          `json:"mutating_webhooks,omitempty"`
	// Scaling stands for that of runconfig.RunConfig, of which it has more.
	Scaling *Scaling `json:"scaling_config,omitempty"`
	// upstream is the name of who knows the users of AuthServer.
	upstream string
	// Middlewares is what the program does with each request, from the outside in.
	Middlewares []Middleware `json:"middleware_configs"`
}

// PermissionProfile is that of a container. On Kubernetes the program does nothing with it, so
// that it is the same for all servers, whatever spec.permissionProfile says.
type PermissionProfile struct {
	Name    string              `json:"name,omitempty"`
	Read    []string            `json:"read,omitempty"`
	Write   []string            `json:"write,omitempty"`
	Network *NetworkPermissions `json:"network,omitempty"`
}

// NetworkPermissions are those of a profile.
type NetworkPermissions struct {
	Outbound *Outbound `json:"outbound,omitempty"`
}

// Outbound is where a container may connect to.
type Outbound struct {
	InsecureAllowAll bool     `json:"insecure_allow_all"`
	AllowHost        []string `json:"allow_host,omitempty"`
	AllowPort        []int    `json:"allow_port,omitempty"`
}

// Scaling is how many pods the backend has, and where proxies share sessions.
type Scaling struct {
	BackendReplicas *int32 `json:"backend_replicas,omitempty"`
	Redis           *Redis `json:"session_redis,omitempty"`
}

// Redis is a store; its password is in a variable of the proxy.
type Redis struct {
	Address   string `json:"address,omitempty"`
	DB        int32  `json:"db,omitempty"`
	KeyPrefix string `json:"key_prefix,omitempty"`
	// TLS is nil for a store without encryption.
	TLS *StoreTLS `json:"tls,omitempty"`
}

// StoreTLS is whom the program believes to be its store. The file, if there is one, stands for the system's authorities.
type StoreTLS struct {
	InsecureSkipVerify bool   `json:"insecureSkipVerify,omitempty"`
	CACertFile         string `json:"caCertFile,omitempty"`
}

// Content is the file without what needs no new proxy: the generation, which moves
// with any field of the spec, and the number of backend pods, which the manager sees to.
func (r RunConfig) Content() RunConfig {
	r.MCPServerGeneration = 0
	if r.Scaling != nil {
		r.Scaling = scaling(nil, r.Scaling.Redis)
	}
	return r
}

func scaling(replicas *int32, redis *Redis) *Scaling {
	if replicas == nil && redis == nil {
		return nil
	}
	return &Scaling{BackendReplicas: replicas, Redis: redis}
}

// plain is the file of a server that asks for nothing but to be run. base is what
// every proxy is told.
func plain(srv *v1beta1.MCPServer, base *runconfig.RunConfig) *RunConfig {
	s := &srv.Spec
	rc := &RunConfig{RunConfig: *base, PermissionProfile: &PermissionProfile{Name: "network", Network: &NetworkPermissions{Outbound: &Outbound{InsecureAllowAll: true}}}}
	rc.Host = host
	rc.Owner, rc.ScalingConfig = nil, nil // the one it does not know, the other is Scaling
	// The program counts on a port, whatever the transport.
	rc.TargetPort = cmp.Or(s.MCPPort, v1beta1.DefaultMCPPort)
	rc.ContainerLabels = map[string]string{"toolhive-port": strconv.Itoa(int(base.Port))}
	for name, value := range base.ContainerLabels {
		rc.ContainerLabels[name] = value
	}
	rc.Scaling = scaling(s.BackendReplicas, nil)
	for _, v := range s.Volumes {
		volume := v.HostPath + ":" + v.MountPath
		if v.ReadOnly {
			rc.PermissionProfile.Read = append(rc.PermissionProfile.Read, volume)
			volume += ":ro"
		} else {
			rc.PermissionProfile.Write = append(rc.PermissionProfile.Write, volume)
		}
		rc.Volumes = append(rc.Volumes, volume)
	}
	return rc
}

// InvalidError is about a spec, or an object that it names, of which no file can be
// made that says everything.
type InvalidError struct {
	// Field of the spec that is at fault, or that names the object.
	Field string
	Err   error
}

func (e *InvalidError) Error() string { return fmt.Sprintf("spec.%s: %v", e.Field, e.Err) }

// Unwrap answers the cause.
func (e *InvalidError) Unwrap() error { return e.Err }

func invalid(field, format string, args ...any) *InvalidError {
	return &InvalidError{Field: field, Err: fmt.Errorf(format, args...)}
}
