package toolhive

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
)

// The proxy may run an authorization server: spec.embeddedAuthServer of an MCPExternalAuthConfig. Its part of the file has
// the fields of that spec by other names; what names a Secret has there the place in the pod where the secret is.

const (
	authServerType    = "embeddedAuthServer"
	authServerVersion = "v0.1.0"

	authServerDir     = "/etc/toolhive/authserver/"
	upstreamSecretEnv = "TOOLHIVE_UPSTREAM_CLIENT_SECRET_"            //nolint:gosec // the name of a variable
	initialTokenEnv   = "TOOLHIVE_UPSTREAM_DCR_INITIAL_ACCESS_TOKEN_" //nolint:gosec // the name of a variable
	delegateSecretEnv = "TOOLHIVE_DELEGATE_CLIENT_SECRET_"            //nolint:gosec // the name of a variable
	storageUserEnv    = "TOOLHIVE_AUTH_SERVER_REDIS_USERNAME"
	storagePassEnv    = "TOOLHIVE_AUTH_SERVER_REDIS_PASSWORD" //nolint:gosec // the name of a variable
	sentinelPort      = 26379
	ownerMayRead      = 0o400
	listenerPort      = 8443 // of TLS; the program knows no other
)

// authServerScopes are what the program supports where nobody says more.
var authServerScopes = []string{"openid", "profile", "email", "offline_access"}

// addAuthServer comes after addOIDC, which knows the audience of the tokens that the authorization server issues.
func (p *Proxy) addAuthServer(srv *v1beta1.MCPServer, named Objects) *InvalidError {
	field, config := "externalAuthConfigRef", named.ExternalAuth
	other := config != nil && typeOf(config) == authServerType
	switch {
	case srv.Spec.AuthServerRef == nil && !other:
		return nil
	case srv.Spec.AuthServerRef != nil && other:
		return invalid(field, "MCPExternalAuthConfig %s is an authorization server, and authServerRef names one, too: leave it to authServerRef", config.GetName())
	case p.Config.OIDC == nil && srv.Spec.OIDCConfigRef != nil:
		return nil // addOIDC has said why
	case srv.Spec.AuthServerRef != nil:
		field, config = "authServerRef", named.AuthServer
	}
	var spec struct {
		Type   string         `json:"type"`
		Server authServerSpec `json:"embeddedAuthServer"`
	}
	if err := decodeSpec(field, config, &spec); err != nil {
		return err
	}
	made, err := p.authServer(srv, &spec.Server)
	if err != nil {
		return invalid(field, "MCPExternalAuthConfig %s: %w", config.GetName(), err)
	}
	p.Config.AuthServer, p.Config.upstream = made, cmp.Or(spec.Server.Upstreams[0].Name, "default")
	return nil
}

// authServer is the part of the file.
func (p *Proxy) authServer(srv *v1beta1.MCPServer, spec *authServerSpec) (map[string]any, error) {
	oidc := p.Config.OIDC
	if err := p.authServerProblem(srv, spec); err != nil {
		return nil, err
	}
	besides := map[string]any{"schema_version": authServerVersion, "allowed_audiences": []any{oidc.ResourceURL}}
	if len(oidc.Scopes) > 0 {
		besides["scopes_supported"] = oidc.Scopes
	} else {
		oidc.Scopes = authServerScopes
	}
	p.addKeys(spec, besides)
	p.addListener(spec, besides)
	if err := cmp.Or(addRegistrationLimit(spec, besides), p.addUpstream(&spec.Upstreams[0], oidc.ResourceURL), p.addDelegates(spec.Delegates),
		p.addTrusted(spec.TrustedIssuers), p.addStorage(srv, spec)); err != nil {
		return nil, err
	}
	spec.PrimaryUpstream = ""
	if spec.ClientMetadata != nil && !spec.ClientMetadata.Enabled {
		spec.ClientMetadata = nil
	}
	made, err := inFile(spec)
	if err != nil {
		return nil, err
	}
	maps.Copy(made, besides)
	if spec.Storage != nil && spec.Storage.Redis != nil {
		redis := made["storage"].(map[string]any)["redis_config"].(map[string]any)
		redis["auth_type"], redis["key_prefix"] = "aclUser", fmt.Sprintf("thv:auth:{%s:%s}:", srv.Namespace, srv.Name)
	}
	return made, nil
}

// authServerProblem is why the program would not start, or refuse everybody; nil if it does neither.
func (p *Proxy) authServerProblem(srv *v1beta1.MCPServer, spec *authServerSpec) error {
	oidc := p.Config.OIDC
	switch {
	case oidc == nil:
		return errors.New("an authorization server needs oidcConfigRef, by which the proxy knows the tokens that it issues")
	case oidc.Audience != oidc.ResourceURL:
		return fmt.Errorf("its tokens are for %s, but oidcConfigRef accepts those for %s: write the same URL as audience and resourceUrl", oidc.ResourceURL, oidc.Audience)
	case len(spec.Upstreams) != 1:
		return fmt.Errorf("it has %d upstream providers: an MCPServer needs one", len(spec.Upstreams))
	case spec.NoUpstreamTokens && p.Config.TokenExchange != nil:
		return errors.New("disableUpstreamTokenInjection keeps tokens from the server, and externalAuthConfigRef sends it one: choose")
	}
	return p.youngerProblem(srv, spec)
}

// youngerProblem is authServerProblem for the fields that an older program does not read.
func (p *Proxy) youngerProblem(srv *v1beta1.MCPServer, spec *authServerSpec) error {
	younger := spec.younger()
	switch listener := spec.TLSListener; {
	case len(younger) > 0 && !p.program.readsYounger():
		return p.program.tooOld(strings.Join(younger, ", "))
	case listener != nil && !(listener.Certificate.complete() && listener.PrivateKey.complete()):
		return errors.New("tlsListener needs name and key of certificateSecretRef and of privateKeySecretRef")
	case listener != nil && srv.Spec.ProxyPort == listenerPort:
		return fmt.Errorf("spec.proxyPort is %d, where tlsListener listens: write another", listenerPort)
	}
	return nil
}

// addKeys mounts what signs the tokens. Without keys the program makes its own, which do not survive it.
func (p *Proxy) addKeys(spec *authServerSpec, besides map[string]any) {
	var names, secrets []any
	for i, key := range spec.SigningKeys {
		name := fmt.Sprintf("key-%d.pem", i)
		p.mountSecret(fmt.Sprint("authserver-signing-key-", i), authServerDir+"keys/"+name, key, new(int32(ownerMayRead)))
		names = append(names, name)
	}
	if len(names) > 0 {
		keys := map[string]any{"key_dir": authServerDir + "keys", "signing_key_file": names[0]}
		if len(names) > 1 {
			keys["fallback_key_files"] = names[1:]
		}
		besides["signing_key_config"] = keys
	}
	for i, key := range spec.HMACSecrets {
		path := fmt.Sprint(authServerDir, "hmac/hmac-", i)
		p.mountSecret(fmt.Sprint("authserver-hmac-secret-", i), path, key, new(int32(ownerMayRead)))
		secrets = append(secrets, path)
	}
	if len(secrets) > 0 {
		besides["hmac_secret_files"] = secrets
	}
	spec.SigningKeys, spec.HMACSecrets = nil, nil
}

// addListener mounts what the port with TLS needs: both files as one directory, in which they change when the Secrets do.
func (p *Proxy) addListener(spec *authServerSpec, besides map[string]any) {
	from := spec.TLSListener
	if from == nil {
		return
	}
	const volume, dir = "authserver-tls-listener", authServerDir + "tls"
	var sources []corev1.VolumeProjection
	for name, key := range map[string]*SecretKey{"tls.crt": from.Certificate, "tls.key": from.PrivateKey} {
		sources = append(sources, corev1.VolumeProjection{Secret: &corev1.SecretProjection{
			LocalObjectReference: corev1.LocalObjectReference{Name: key.Name}, Items: []corev1.KeyToPath{{Key: key.Key, Path: name}}}})
	}
	slices.SortFunc(sources, func(a, b corev1.VolumeProjection) int {
		return cmp.Compare(a.Secret.Items[0].Path, b.Secret.Items[0].Path)
	})
	if from.Certificate.Name == from.PrivateKey.Name {
		sources[0].Secret.Items = append(sources[0].Secret.Items, sources[1].Secret.Items...)
		sources = sources[:1]
	}
	p.Volumes = append(p.Volumes, corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{
		Projected: &corev1.ProjectedVolumeSource{Sources: sources, DefaultMode: new(int32(ownerMayRead))}}})
	p.Mounts = append(p.Mounts, corev1.VolumeMount{Name: volume, MountPath: dir, ReadOnly: true})
	besides["tls_listener"] = map[string]any{"cert_file": dir + "/tls.crt", "key_file": dir + "/tls.key"}
	spec.TLSListener = nil
}

// addRegistrationLimit is how many clients may register themselves.
func addRegistrationLimit(spec *authServerSpec, besides map[string]any) error {
	limit := spec.RegistrationLimit
	if limit == nil {
		return nil
	}
	if limit.MaxTokens < 1 || limit.RefillPeriod.Duration <= 0 {
		return errors.New("registrationRateLimit needs maxTokens and refillPeriod above 0")
	}
	besides["registration_rate_limit"] = map[string]any{"requests_per_second": float64(limit.MaxTokens) / limit.RefillPeriod.Seconds(), "burst": limit.MaxTokens}
	spec.RegistrationLimit = nil
	return nil
}

// addTrusted mounts the certificates of the authorities of issuers.
func (p *Proxy) addTrusted(issuers []trustedIssuer) error {
	for i := range issuers {
		if err := p.addBundle(issuers[i].CABundle, "issuer-ca", i); err != nil {
			return fmt.Errorf("trustedIssuers[%d].%w", i, err)
		}
	}
	return nil
}

// addBundle mounts the certificate of an authority, if there is one.
func (p *Proxy) addBundle(bundle *placedBundle, purpose string, i int) error {
	if bundle == nil {
		return nil
	}
	from, ok := bundle.key()
	if !ok || from.Name == "" {
		return errors.New("caBundleRef lacks configMapRef with a name")
	}
	bundle.at = fmt.Sprintf("%s%s/%d/%s", authServerDir, purpose, i, caKey)
	p.copyFile(fmt.Sprintf("authserver-%s-%d", purpose, i), bundle.at, from)
	return nil
}

// addUpstream gives the secrets of an upstream variables by its name.
func (p *Proxy) addUpstream(u *upstream, resourceURL string) error {
	suffix := strings.ToUpper(strings.ReplaceAll(u.Name, "-", "_"))
	var client *upstreamClient
	switch {
	case u.Type == "oidc" && u.OIDC != nil && u.OAuth2 == nil:
		client = &u.OIDC.upstreamClient
	case u.Type == "oauth2" && u.OAuth2 != nil && u.OIDC == nil:
		client = &u.OAuth2.upstreamClient
	default:
		return fmt.Errorf("upstream %q is of type %q without the configuration of that type: write oidcConfig for oidc, or oauth2Config for oauth2", u.Name, u.Type)
	}
	if err := registrationProblem(client, u.Type == "oidc"); err != nil {
		return fmt.Errorf("upstream %q: %w", u.Name, err)
	}
	if client.Registration != nil {
		p.inEnv(client.Registration.InitialToken, initialTokenEnv+suffix)
	}
	if err := p.addBundle(client.CABundle, "upstream-ca", 0); err != nil {
		return fmt.Errorf("upstream %q: %w", u.Name, err)
	}
	p.inEnv(client.ClientSecret, upstreamSecretEnv+suffix)
	client.RedirectURI = cmp.Or(client.RedirectURI, strings.TrimRight(resourceURL, "/")+"/oauth/callback")
	return nil
}

// registrationProblem is about a client that is known, or registers itself. One of OIDC finds by itself where.
func registrationProblem(client *upstreamClient, finds bool) error {
	registration := client.Registration
	switch {
	case (client.ClientID == "") != (registration != nil), registration != nil && client.ClientSecret != nil:
		return errors.New("write clientId, or dcrConfig without clientSecretRef")
	case registration == nil, finds && registration.DiscoveryURL+registration.Endpoint == "":
		return nil
	case (registration.DiscoveryURL == "") == (registration.Endpoint == ""):
		return errors.New("write one of discoveryUrl and registrationEndpoint into dcrConfig")
	}
	return nil
}

// addDelegates gives the secrets of clients that act for users variables by their place.
func (p *Proxy) addDelegates(clients []delegate) error {
	for i, client := range clients {
		if client.ClientSecret == nil {
			return fmt.Errorf("delegateClients[%d] lacks clientSecretRef", i)
		}
		p.inEnv(client.ClientSecret, fmt.Sprint(delegateSecretEnv, i))
	}
	return nil
}

// addStorage is nothing for memory, which the program takes by itself.
func (p *Proxy) addStorage(srv *v1beta1.MCPServer, spec *authServerSpec) error {
	if spec.Storage.inMemory() {
		if spec.Storage != nil && spec.Storage.MaxClients != nil {
			spec.Storage = &authStorage{Type: spec.Storage.Type, MaxClients: spec.Storage.MaxClients}
		} else {
			spec.Storage = nil
		}
		return nil
	}
	redis := spec.Storage.Redis
	switch {
	case spec.Storage.Type != "redis" || redis == nil:
		return fmt.Errorf("storage is of type %q: write memory, or redis with its configuration", spec.Storage.Type)
	case (redis.Addr == "") == (redis.Sentinel == nil):
		return errors.New("storage.redis needs one of addr and sentinelConfig")
	case redis.User == nil || redis.User.Password == nil:
		return errors.New("storage.redis lacks aclUserConfig.passwordSecretRef")
	}
	p.inEnv(redis.User.Username, storageUserEnv)
	p.inEnv(redis.User.Password, storagePassEnv)
	p.addAuthority(redis.TLS, "master", "ca.crt")
	if redis.Sentinel == nil {
		redis.SentinelTLS = nil
		return nil
	}
	p.addAuthority(redis.SentinelTLS, "sentinel", "sentinel-ca.crt")
	if service := redis.Sentinel.Service; len(redis.Sentinel.Addrs) == 0 {
		if service == nil {
			return errors.New("storage.redis.sentinelConfig needs sentinelAddrs or sentinelService")
		}
		redis.Sentinel.Addrs = []string{fmt.Sprintf("%s.%s.svc.cluster.local:%d", service.Name, cmp.Or(service.Namespace, srv.Namespace), cmp.Or(service.Port, sentinelPort))}
	}
	redis.Sentinel.Service = nil
	return nil
}

// addAuthority mounts the certificate of an authority.
func (p *Proxy) addAuthority(tls *redisTLS, purpose, file string) {
	if tls == nil || tls.CA == nil {
		return
	}
	tls.CA.at = authServerDir + "redis-tls/" + file
	p.mountSecret("redis-tls-ca-"+purpose, tls.CA.at, tls.CA.SecretKey, new(int32(ownerMayRead)))
}

// inEnv puts a secret, if there is one, into a variable.
func (p *Proxy) inEnv(secret *placed, name string) {
	if secret == nil {
		return
	}
	secret.at = name
	p.addEnv(name, secret.SecretKey)
}

// fileKeys are those keys of the file that are not the field in snake case.
var fileKeys = map[string]string{ //nolint:gosec // names of fields
	"upstreamProviders": "upstreams", "userInfo": "userinfo", "userInfoOverride": "userinfo_override", "allowPrivateIPs": "allow_private_ips",
	"allowPrivateKeyJWTRegistration": "allow_private_key_jwt_registration", "caBundleRef": "ca_file_path", "maxDCRClients": "max_dcr_clients",
	"redis": "redis_config", "clientSecretRef": "client_secret_env_var", "initialAccessTokenRef": "initial_access_token_env_var",
	"usernameSecretRef": "username_env_var", "passwordSecretRef": "password_env_var", "caCertSecretRef": "ca_cert_file",
}

// keysAreData are the fields of which the keys are the user's.
var keysAreData = []string{"additionalAuthorizationParams", "additionalTokenParams", "additionalHeaders"}

// inFile is a specification with the keys of the file.
func inFile(spec *authServerSpec) (map[string]any, error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	var made map[string]any
	if err := json.Unmarshal(text, &made); err != nil {
		return nil, err
	}
	return renamed(made).(map[string]any), nil
}

// renamed has the keys of the file for the fields of a value.
func renamed(value any) any {
	switch v := value.(type) {
	case []any:
		for i := range v {
			v[i] = renamed(v[i])
		}
	case map[string]any:
		made := map[string]any{}
		for field, inner := range v {
			if !slices.Contains(keysAreData, field) {
				inner = renamed(inner)
			}
			made[cmp.Or(fileKeys[field], snake(field))] = inner
		}
		value = made
	}
	return value
}

// snake is a name in camel case, in which several capitals are one word, in snake case.
func snake(name string) string {
	var b strings.Builder
	var last rune
	for _, r := range name {
		if unicode.IsUpper(r) && !unicode.IsUpper(last) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
		last = r
	}
	return b.String()
}
