package toolhive

import "encoding/json"

// placed is a key of a Secret, and where the program finds it: a variable or a file. The file has only that.
type placed struct {
	SecretKey
	at string
}

// MarshalJSON writes the place.
func (s placed) MarshalJSON() ([]byte, error) { return json.Marshal(s.at) }

// authServerSpec is spec.embeddedAuthServer as far as the program of v0.44.0 reads it. A field that is not here is
// refused: an older program would leave it out without a word. One that is younger is here: the CRD of v0.63.0 writes it
// into every object, and an older program refuses the clients that it would let in.
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
	AllowHTTP      bool `json:"insecureAllowHTTP,omitempty"`
	AllowPrivateIP bool `json:"allowPrivateIPs,omitempty"`
	// Registration is how the client registers itself.
	Registration *struct {
		DiscoveryURL      string  `json:"discoveryUrl,omitempty"`
		Endpoint          string  `json:"registrationEndpoint,omitempty"`
		InitialToken      *placed `json:"initialAccessTokenRef,omitempty"`
		SoftwareID        string  `json:"softwareId,omitempty"`
		SoftwareStatement string  `json:"softwareStatement,omitempty"`
	} `json:"dcrConfig,omitempty"`
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
	IssuerURL        string   `json:"issuerUrl"`
	ExpectedAudience string   `json:"expectedAudience"`
	JWKSURL          string   `json:"jwksUrl,omitempty"`
	AllowHTTP        bool     `json:"insecureAllowHTTP,omitempty"`
	AllowPrivateIP   bool     `json:"allowPrivateIPs,omitempty"`
	ActorClaim       string   `json:"actorClaim,omitempty"`
	AllowedActors    []string `json:"allowedActors,omitempty"`
	AllowedDelegates []string `json:"allowedDelegateClients,omitempty"`
	AllowMayAct      bool     `json:"allowMayAct,omitempty"`
}

// authStorage is where sessions are kept: in memory, or in Redis.
type authStorage struct {
	Type  string     `json:"type"`
	Redis *authRedis `json:"redis,omitempty"`
}

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
