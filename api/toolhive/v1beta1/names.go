package v1beta1

import "regexp"

// CRDName is the name of the CustomResourceDefinition of MCPServer.
const CRDName = "mcpservers.toolhive.stacklok.dev"

// Annotations of an MCPServer by which a person asks for a restart, and reads
// which request was acted on last.
const (
	// AnnotationRestartedAt is the request: a time in RFC 3339.
	AnnotationRestartedAt = "mcpserver.toolhive.stacklok.dev/restarted-at"
	// AnnotationRestartStrategy is StrategyRolling, the default, or StrategyImmediate.
	AnnotationRestartStrategy = "mcpserver.toolhive.stacklok.dev/restart-strategy"
	// AnnotationLastProcessedRestart repeats the request that was acted on last.
	AnnotationLastProcessedRestart = "mcpserver.toolhive.stacklok.dev/last-processed-restart"
)

// AnnotationAcceptNotEnforced names, with commas, the fields of the spec that ask for
// protection and without which the server is to run all the same, such as
// "authzConfig,audit".
const AnnotationAcceptNotEnforced = "phasegate.dev/accept-not-enforced"

// The values of AnnotationRestartStrategy.
const (
	StrategyRolling   = "rolling"
	StrategyImmediate = "immediate"
)

// The transports, and those among them that a proxy may speak to clients.
const (
	TransportStdio          = "stdio"
	TransportStreamableHTTP = "streamable-http"
	TransportSSE            = "sse"
)

// What the operator and the proxy agree on.
const (
	// AnnotationGeneration is on the pods of the proxy, and on the StatefulSet and
	// its pods: the metadata.generation of the MCPServer at which their content
	// changed last. A proxy never applies over a StatefulSet of a newer one.
	AnnotationGeneration = "toolhive.stacklok.dev/mcpserver-generation"
	// EnvGeneration gives a proxy the annotation of its own pod: the file of the
	// run configuration changes under a running pod, its annotation does not.
	EnvGeneration = "THV_MCPSERVER_GENERATION"
	// EnvOpenShift is "true" for a proxy on OpenShift, where a namespace chooses the user
	// of its pods. ToolHive's proxyrunner reads it, too.
	EnvOpenShift = "OPERATOR_OPENSHIFT"
	// AnnotationRunConfigChecksum is on the pods of the proxy, so that a change of
	// the file replaces them.
	AnnotationRunConfigChecksum = "toolhive.stacklok.dev/runconfig-checksum"
	// AnnotationCopiedBundles is on the pods of the proxy, so that a change of certificates that they do not get anew
	// replaces them.
	AnnotationCopiedBundles = "toolhive.stacklok.dev/authserver-ca-checksum"
	// AnnotationContentChecksum is on the ConfigMap.
	AnnotationContentChecksum = "toolhive.stacklok.dev/content-checksum"
	// RunConfigFile is the key of the ConfigMap, and the name of the file.
	RunConfigFile = "runconfig.json"
	// ProxyContainer and BackendContainer are the names of the two containers.
	ProxyContainer   = "toolhive"
	BackendContainer = "mcp"
	// BackendFieldManager is the field manager with which a proxy applies.
	BackendFieldManager = "toolhive-container-manager"
	// HealthPath answers whether a proxy is up.
	HealthPath = "/health"
	// DefaultMCPPort is that of spec.mcpPort.
	DefaultMCPPort = 8080
)

// LabelName is on everything that belongs to a server; its value is the
// server's name.
const LabelName = "toolhive-name"

// ProxyLabels are those of the proxy's objects, and select its pods.
func ProxyLabels(server string) map[string]string {
	return map[string]string{
		"app":                        "mcpserver",
		"app.kubernetes.io/name":     "mcpserver",
		"app.kubernetes.io/instance": server,
		"toolhive":                   "true",
		LabelName:                    server,
	}
}

// BackendSelector selects the pods of the backend. They never bear ProxyLabels,
// because no server is called mcpserver.
func BackendSelector(server string) map[string]string { return map[string]string{"app": server} }

// Names of what is made for a server. The Deployment of the proxy and the
// StatefulSet of the backend bear the server's own.

// ProxyServiceName is the Service that clients use.
func ProxyServiceName(server string) string { return "mcp-" + server + "-proxy" }

// BackendServiceName is the Service that the proxy uses.
func BackendServiceName(server string) string { return "mcp-" + server }

// HeadlessServiceName is the Service that gives backend pods names.
func HeadlessServiceName(server string) string { return "mcp-" + server + "-headless" }

// RunConfigName is the ConfigMap that the proxy reads.
func RunConfigName(server string) string { return server + "-runconfig" }

// PoliciesName is the ConfigMap of the policies of spec.authzConfig.inline.
func PoliciesName(server string) string { return server + "-authz-inline" }

// ProxyRBACName is the ServiceAccount, Role and RoleBinding of the proxy.
func ProxyRBACName(server string) string { return server + "-proxy-runner" }

// BackendServiceAccountName is the ServiceAccount of a backend that names none.
func BackendServiceAccountName(server string) string { return server + "-sa" }

// Domain conditions. Ready, Reconciling and Stalled are the runner's. Of the others,
// StdioReplicaCapped, SessionStorageWarning and RateLimitConfigValid are on every server, as
// with the peer; one that does not apply is absent.
const (
	// ConditionPodTemplateValid tells whether spec.podTemplateSpec can be used.
	ConditionPodTemplateValid = "PodTemplateValid"
	// ConditionStdioReplicaCapped tells whether a stdio server asks for more proxies
	// than the one that can be attached to it.
	ConditionStdioReplicaCapped = "StdioReplicaCapped"
	// ConditionSessionStorageWarning tells whether sessions would be lost between
	// several proxies.
	ConditionSessionStorageWarning = "SessionStorageWarning"
	// ConditionRestartRequestValid is False while the annotations ask for a restart
	// that cannot be understood.
	ConditionRestartRequestValid = "RestartRequestValid"
	// ConditionSpecEnforced is False while the spec asks for what the proxy does not do.
	ConditionSpecEnforced = "SpecEnforced"
	// ConditionToolConfigRefValidated and ConditionExternalAuthConfigValidated tell
	// whether the object that the spec names is there.
	ConditionToolConfigRefValidated      = "ToolConfigRefValidated"
	ConditionExternalAuthConfigValidated = "ExternalAuthConfigValidated"
	// ConditionAuthServerRefValidated is about spec.authServerRef.
	ConditionAuthServerRefValidated = "AuthServerRefValidated"
	// ConditionGroupRefValidated tells whether the group of the server is there and ready.
	// It stops nobody.
	ConditionGroupRefValidated = "GroupRefValidated"
	// ConditionRateLimitConfigValid tells whether spec.rateLimiting can be followed. That
	// nobody follows it is told by SpecEnforced.
	ConditionRateLimitConfigValid = "RateLimitConfigValid"
	// ConditionPrimaryUpstreamProviderIgnored is there while the spec has a field of
	// authzConfig that has no effect on an MCPServer.
	ConditionPrimaryUpstreamProviderIgnored = "AuthzPrimaryUpstreamProviderIgnored"
)

// Reasons of conditions. Ready has these two, whatever phase the machine is in.
const (
	ReasonReady    = "Ready"
	ReasonNotReady = "NotReady"

	ReasonValidPodTemplateSpec   = "ValidPodTemplateSpec"
	ReasonInvalidPodTemplateSpec = "InvalidPodTemplateSpec"

	ReasonStdioTransportCapAt1     = "StdioTransportCapAt1"
	ReasonStdioReplicaCapNotActive = "StdioReplicaCapNotActive"

	ReasonSessionStorageMissingForReplicas = "SessionStorageMissingForReplicas"
	ReasonSessionStorageConfigured         = "SessionStorageConfigured"
	ReasonSessionStorageNotApplicable      = "SessionStorageWarningNotApplicable"

	ReasonRateLimitConfigValid           = "RateLimitConfigValid"
	ReasonRateLimitNotApplicable         = "RateLimitNotApplicable"
	ReasonRateLimitPerUserNeedsAuth      = "PerUserRequiresAuth"
	ReasonRateLimitConfigInvalid         = "RateLimitConfigInvalid" // the peer has no word for it
	ReasonPrimaryUpstreamProviderIgnored = "PrimaryUpstreamProviderIgnored"

	ReasonInvalidRestartTimestamp = "InvalidRestartTimestamp"
	ReasonInvalidRestartStrategy  = "InvalidRestartStrategy"

	ReasonNotEnforced = "NotEnforced"
	ReasonNotSent     = "CredentialNotSent" // of spec.externalAuthConfigRef

	ReasonToolConfigRefValid       = "ToolConfigRefValid"
	ReasonToolConfigRefNotFound    = "ToolConfigRefNotFound"
	ReasonExternalAuthConfigValid  = "ExternalAuthConfigValid"
	ReasonExternalAuthConfigAbsent = "ExternalAuthConfigRefNotFound"

	ReasonAuthServerRefValid         = "AuthServerRefValid"
	ReasonAuthServerRefNotFound      = "AuthServerRefNotFound"
	ReasonAuthServerRefInvalidKind   = "AuthServerRefInvalidKind"
	ReasonAuthServerRefInvalidType   = "AuthServerRefInvalidType"
	ReasonAuthServerRefInvalidConfig = "AuthServerRefInvalidConfig"
	ReasonAuthServerRefMultiUpstream = "MultiUpstreamNotSupported"

	ReasonGroupRefValid    = "GroupRefIsValid"
	ReasonGroupRefNotFound = "GroupRefNotFound"
	ReasonGroupRefNotReady = "GroupRefNotReady"
)

// MaxMessageLength bounds status.message, in characters.
const MaxMessageLength = 1024

// Variables of the proxy of this project that people set in spec.resourceOverrides.proxyDeployment.env. ProxyEnvPrefix
// begins them all, so that another name is a mistake.
const (
	ProxyEnvPrefix    = "TOOLHIVE_PROXY_"
	EnvAllowedOrigins = ProxyEnvPrefix + "ALLOWED_ORIGINS"
	EnvAllowedHosts   = ProxyEnvPrefix + "ALLOWED_HOSTS"
	EnvRequestTimeout = ProxyEnvPrefix + "REQUEST_TIMEOUT"
)

// ProxyEnv are the variables with ProxyEnvPrefix.
func ProxyEnv() []string { return []string{EnvAllowedHosts, EnvAllowedOrigins, EnvRequestTimeout} }

// MayProtect tells whether the name of a field that is not known says that it keeps something or somebody out. A server
// that runs without what it asks for is open; one that does not run is seen.
func MayProtect(field string) bool { return protecting.MatchString(field) }

var protecting = regexp.MustCompile(`(?i)auth|oidc|token|tls|cert|cabundle|secur|secret|cred|key|polic|permi|access|allow|deny|block|restrict|limit|filter|tools|guard|webhook|audit|isolat|network|origin|sandbox|encrypt|middleware`)
