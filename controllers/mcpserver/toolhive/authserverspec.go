package toolhive

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// placed is a key of a Secret, and where the program finds it: a variable or a file. The file has only that.
type placed struct {
	SecretKey
	at string
}

// MarshalJSON writes the place.
func (s placed) MarshalJSON() ([]byte, error) { return json.Marshal(s.at) }

// placedBundle is the certificate of an authority in a ConfigMap, and the file where the program finds it.
type placedBundle struct {
	caBundle
	at string
}

// MarshalJSON writes the file.
func (b placedBundle) MarshalJSON() ([]byte, error) { return json.Marshal(b.at) }

// authServerSpec is spec.embeddedAuthServer. A field that is not here is refused; one that younger names is, too, unless
// the program is known to read it: an older one would leave it out without a word. AllowPrivateKeyJWT is younger and not
// named there: the CRD of v0.63.0 writes it into every object, and an older program refuses the clients that it would let in.
type authServerSpec struct {
	Issuer                       string           `json:"issuer"`
	AuthorizationEndpointBaseURL string           `json:"authorizationEndpointBaseUrl,omitempty"`
	SigningKeys                  []SecretKey      `json:"signingKeySecretRefs,omitempty"`
	HMACSecrets                  []SecretKey      `json:"hmacSecretRefs,omitempty"`
	TokenLifespans               *tokenLifespans  `json:"tokenLifespans,omitempty"`
	Upstreams                    []upstream       `json:"upstreamProviders"`
	PrimaryUpstream              string           `json:"primaryUpstreamProvider,omitempty"` // for servers of several; so says the CRD
	Storage                      *authStorage     `json:"storage,omitempty"`
	NoUpstreamTokens             bool             `json:"disableUpstreamTokenInjection,omitempty"`
	AllowHTTP                    bool             `json:"insecureAllowHTTP,omitempty"`
	BaselineScopes               []string         `json:"baselineClientScopes,omitempty"`
	AllowConfidential            bool             `json:"allowConfidentialClientRegistration,omitempty"`
	AllowConfidentialLoopback    bool             `json:"insecureAllowConfidentialOverLoopbackHTTP,omitempty"`
	AllowPrivateKeyJWT           bool             `json:"allowPrivateKeyJWTRegistration,omitempty"`
	Delegates                    []delegate       `json:"delegateClients,omitempty"`
	TrustedIssuers               []trustedIssuer  `json:"trustedIssuers,omitempty"`
	ConfidentialRedirects        []string         `json:"forceConfidentialRedirectUris,omitempty"`
	ClientMetadata               *metadataClients `json:"cimd,omitempty"`
	TLSListener                  *tlsListener     `json:"tlsListener,omitempty"`
	RegistrationLimit            *bucket          `json:"registrationRateLimit,omitempty"`
}

// tlsListener is a second port of the authorization server, with TLS.
type tlsListener struct {
	Certificate *SecretKey `json:"certificateSecretRef"`
	PrivateKey  *SecretKey `json:"privateKeySecretRef"`
}

// younger are the fields, of those that are set, which a program of v0.44.0 does not read.
func (s *authServerSpec) younger() (fields []string) {
	add := func(set bool, field string) {
		if set {
			fields = append(fields, "embeddedAuthServer."+field)
		}
	}
	add(s.TLSListener != nil, "tlsListener")
	add(s.RegistrationLimit != nil, "registrationRateLimit")
	add(s.Storage != nil && s.Storage.MaxClients != nil, "storage.maxDCRClients")
	for _, issuer := range s.TrustedIssuers {
		add(issuer.Name != "", "trustedIssuers.name")
		add(issuer.CABundle != nil, "trustedIssuers.caBundleRef")
	}
	for _, u := range s.Upstreams {
		if c := u.OIDC; c != nil {
			c.younger("upstreamProviders.oidcConfig.", add)
			add(c.AllowPrivateIP, "upstreamProviders.oidcConfig.allowPrivateIPs")
			add(c.Registration != nil, "upstreamProviders.oidcConfig.dcrConfig")
		}
		if c := u.OAuth2; c != nil {
			c.younger("upstreamProviders.oauth2Config.", add)
			add(c.AuthMethod != "", "upstreamProviders.oauth2Config.tokenEndpointAuthMethod")
			add(c.Registration != nil && c.Registration.younger(), "upstreamProviders.oauth2Config.dcrConfig.registrationProbe or rotationKey")
		}
	}
	return fields
}

func (c *upstreamClient) younger(at string, add func(set bool, field string)) {
	add(len(c.TokenParameters) > 0, at+"additionalTokenParams")
	add(c.OmitScope, at+"omitScopeOnRefresh")
	add(c.CABundle != nil, at+"caBundleRef")
}

func (r *registration) younger() bool {
	return r.RotationKey != "" || r.Probe != "" || r.ProbeInterval != nil
}

type tokenLifespans struct {
	Access   string `json:"accessTokenLifespan,omitempty"`
	Refresh  string `json:"refreshTokenLifespan,omitempty"`
	AuthCode string `json:"authCodeLifespan,omitempty"`
}

type metadataClients struct {
	Enabled  bool   `json:"enabled"`
	MaxSize  int    `json:"cacheMaxSize,omitempty"`
	Fallback string `json:"cacheFallbackTtl,omitempty"`
}

// upstream is who knows the users.
type upstream struct {
	Name   string          `json:"name,omitempty"`
	Type   string          `json:"type"`
	OIDC   *oidcUpstream   `json:"oidcConfig,omitempty"`
	OAuth2 *oauth2Upstream `json:"oauth2Config,omitempty"`
}

// upstreamClient is what the authorization server is to an upstream.
type upstreamClient struct {
	ClientID     string            `json:"clientId,omitempty"`
	ClientSecret *placed           `json:"clientSecretRef,omitempty"`
	RedirectURI  string            `json:"redirectUri,omitempty"`
	Scopes       []string          `json:"scopes,omitempty"`
	Parameters   map[string]string `json:"additionalAuthorizationParams,omitempty"`
	// Registration is how the client registers itself.
	Registration    *registration     `json:"dcrConfig,omitempty"`
	AllowPrivateIP  bool              `json:"allowPrivateIPs,omitempty"`
	TokenParameters map[string]string `json:"additionalTokenParams,omitempty"`
	OmitScope       bool              `json:"omitScopeOnRefresh,omitempty"`
	CABundle        *placedBundle     `json:"caBundleRef,omitempty"`
}

type registration struct {
	DiscoveryURL      string           `json:"discoveryUrl,omitempty"`
	Endpoint          string           `json:"registrationEndpoint,omitempty"`
	InitialToken      *placed          `json:"initialAccessTokenRef,omitempty"`
	SoftwareID        string           `json:"softwareId,omitempty"`
	SoftwareStatement string           `json:"softwareStatement,omitempty"`
	RotationKey       string           `json:"rotationKey,omitempty"`
	Probe             string           `json:"registrationProbe,omitempty"`
	ProbeInterval     *metav1.Duration `json:"registrationProbeInterval,omitempty"`
}

type oidcUpstream struct {
	upstreamClient
	IssuerURL    string    `json:"issuerUrl"`
	UserInfo     *userInfo `json:"userInfoOverride,omitempty"`
	SubjectClaim string    `json:"subjectClaim,omitempty"`
}

type oauth2Upstream struct {
	upstreamClient
	AuthorizationEndpoint string    `json:"authorizationEndpoint"`
	TokenEndpoint         string    `json:"tokenEndpoint"`
	UserInfo              *userInfo `json:"userInfo,omitempty"`
	ResponseMapping       *struct {
		AccessToken  string `json:"accessTokenPath"`
		Scope        string `json:"scopePath,omitempty"`
		RefreshToken string `json:"refreshTokenPath,omitempty"`
		ExpiresIn    string `json:"expiresInPath,omitempty"`
	} `json:"tokenResponseMapping,omitempty"`
	Identity *struct {
		Subject string `json:"subjectPath"`
		Name    string `json:"namePath,omitempty"`
		Email   string `json:"emailPath,omitempty"`
	} `json:"identityFromToken,omitempty"`
	AllowHTTP  bool   `json:"insecureAllowHTTP,omitempty"`
	AuthMethod string `json:"tokenEndpointAuthMethod,omitempty"`
}

type userInfo struct {
	EndpointURL string            `json:"endpointUrl"`
	Method      string            `json:"httpMethod,omitempty"`
	Headers     map[string]string `json:"additionalHeaders,omitempty"`
	Mapping     *struct {
		Subject []string `json:"subjectFields,omitempty"`
		Name    []string `json:"nameFields,omitempty"`
		Email   []string `json:"emailFields,omitempty"`
	} `json:"fieldMapping,omitempty"`
}

type delegate struct {
	ClientID     string   `json:"clientId"`
	ClientSecret *placed  `json:"clientSecretRef,omitempty"`
	Scopes       []string `json:"scopes"`
	Audiences    []string `json:"audiences"`
}

type trustedIssuer struct {
	Name             string   `json:"name,omitempty"`
	IssuerURL        string   `json:"issuerUrl"`
	ExpectedAudience string   `json:"expectedAudience"`
	JWKSURL          string   `json:"jwksUrl,omitempty"`
	AllowHTTP        bool     `json:"insecureAllowHTTP,omitempty"`
	AllowPrivateIP   bool     `json:"allowPrivateIPs,omitempty"`
	ActorClaim       string   `json:"actorClaim,omitempty"`
	AllowedActors    []string `json:"allowedActors,omitempty"`
	AllowedDelegates []string `json:"allowedDelegateClients,omitempty"`
	AllowMayAct      bool     `json:"allowMayAct,omitempty"`

	CABundle *placedBundle `json:"caBundleRef,omitempty"`
}

// authStorage is where sessions are kept: in memory, or in Redis.
type authStorage struct {
	Type       string     `json:"type"`
	Redis      *authRedis `json:"redis,omitempty"`
	MaxClients *int32     `json:"maxDCRClients,omitempty"`
}

// inMemory tells whether nothing else is asked for.
func (s *authStorage) inMemory() bool { return s == nil || s.Type == "memory" }

type authRedis struct {
	Addr        string `json:"addr,omitempty"`
	ClusterMode bool   `json:"clusterMode,omitempty"`
	Sentinel    *struct {
		MasterName string           `json:"masterName"`
		Addrs      []string         `json:"sentinelAddrs,omitempty"`
		Service    *sentinelService `json:"sentinelService,omitempty"`
		DB         int32            `json:"db,omitempty"`
	} `json:"sentinelConfig,omitempty"`
	User *struct {
		Username *placed `json:"usernameSecretRef,omitempty"`
		Password *placed `json:"passwordSecretRef,omitempty"`
	} `json:"aclUserConfig,omitempty"`
	DialTimeout  string    `json:"dialTimeout,omitempty"`
	ReadTimeout  string    `json:"readTimeout,omitempty"`
	WriteTimeout string    `json:"writeTimeout,omitempty"`
	TLS          *redisTLS `json:"tls,omitempty"`
	SentinelTLS  *redisTLS `json:"sentinelTls,omitempty"`
}

type sentinelService struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"`
	Port      int32  `json:"port,omitempty"`
}

type redisTLS struct {
	SkipVerify bool    `json:"insecureSkipVerify,omitempty"`
	CA         *placed `json:"caCertSecretRef,omitempty"`
}
