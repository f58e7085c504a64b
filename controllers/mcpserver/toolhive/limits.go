package toolhive

import (
	"errors"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
)

// redisPasswordEnv is where the program takes the password of the store from.
const redisPasswordEnv = "THV_SESSION_REDIS_PASSWORD" //nolint:gosec // the name of a variable

// Where the program finds the authority of the store.
const (
	storeCAVolume = "session-redis-tls-ca"
	storeCAFile   = "/etc/toolhive/session-redis-tls/ca.crt"
)

// maxAuditData is how much of a request or answer an audit event may have, in bytes:
// the program's own default, which counts only where a file asks for data at all.
const maxAuditData = 1024

// Audit is an audit log on standard output. The file does not switch it on: its being
// there does.
type Audit struct {
	DetectApplicationErrors bool `json:"detectApplicationErrors"`
	MaxDataSize             int  `json:"maxDataSize"`
}

func (p *Proxy) addAudit(srv *v1beta1.MCPServer, _ Objects) *InvalidError {
	if srv.Spec.Audit == nil {
		return nil
	}
	var spec struct {
		Enabled bool `json:"enabled"`
	}
	if err := decodeField("audit", srv.Spec.Audit, &spec); err != nil {
		return err
	}
	if spec.Enabled {
		p.Config.Audit = &Audit{DetectApplicationErrors: true, MaxDataSize: maxAuditData}
	}
	return nil
}

func (p *Proxy) addSessions(srv *v1beta1.MCPServer, _ Objects) *InvalidError {
	storage := srv.Spec.SessionStorage
	if storage == nil || storage.Provider != "redis" {
		return nil
	}
	if storage.Address == "" {
		return invalid("sessionStorage", "redis has no address: name its host and port")
	}
	redis := &Redis{Address: storage.Address, DB: storage.DB, KeyPrefix: storage.KeyPrefix}
	if storage.TLS != nil {
		if err := p.addStoreTLS(redis, storage.TLS); err != nil {
			return err
		}
	}
	p.Config.Scaling = scaling(srv.Spec.BackendReplicas, redis)
	if storage.PasswordRef != nil {
		p.addEnv(redisPasswordEnv, SecretKey{Name: storage.PasswordRef.Name, Key: storage.PasswordRef.Key})
	}
	return nil
}

// addStoreTLS encrypts the way to the store. A program that does not read it would send the password unencrypted.
func (p *Proxy) addStoreTLS(redis *Redis, from *apiextensionsv1.JSON) *InvalidError {
	const field = "sessionStorage"
	var tls struct {
		SkipVerify bool       `json:"insecureSkipVerify"`
		CA         *SecretKey `json:"caCertSecretRef"`
	}
	if err := decodeField(field, from, &tls); err != nil {
		return err
	}
	if !p.program.readsYounger() {
		return &InvalidError{Field: field, Err: p.program.tooOld("tls")}
	}
	redis.TLS = &StoreTLS{InsecureSkipVerify: tls.SkipVerify}
	if tls.CA != nil {
		redis.TLS.CACertFile = storeCAFile
		p.mountSecret(storeCAVolume, storeCAFile, *tls.CA, new(int32(ownerMayRead)))
	}
	return nil
}

// addRequestLimits is about single requests.
func (p *Proxy) addRequestLimits(srv *v1beta1.MCPServer, _ Objects) *InvalidError {
	size, text := srv.Spec.MaxRequestBodySize, srv.Spec.ProxyReadTimeout
	if size < 0 {
		return invalid("maxRequestBodySize", "%d bytes are none: write a positive number", size)
	}
	p.Config.MaxRequestBodySize = size
	if text == "" {
		return nil
	}
	timeout, err := time.ParseDuration(text)
	if err != nil || timeout < 0 {
		return invalid("proxyReadTimeout", "%q is no time: write one such as 1m", text)
	}
	p.Config.ProxyReadTimeout = timeout.String()
	return nil
}

// rateLimits is spec.rateLimiting, and has the same form in the file.
type rateLimits struct {
	Shared  *bucket `json:"shared,omitempty"`
	PerUser *bucket `json:"perUser,omitempty"`
	Tools   []struct {
		Name    string  `json:"name"`
		Shared  *bucket `json:"shared,omitempty"`
		PerUser *bucket `json:"perUser,omitempty"`
	} `json:"tools,omitempty"`
}

type bucket struct {
	MaxTokens    int32           `json:"maxTokens"`
	RefillPeriod metav1.Duration `json:"refillPeriod"`
}

// perUser tells whether the program must know its users.
func (l *rateLimits) perUser() bool {
	for _, t := range l.Tools {
		if t.PerUser != nil {
			return true
		}
	}
	return l.PerUser != nil
}

// ErrNoUsers is about limits per user where nobody knows the users.
var ErrNoUsers = errors.New("perUser needs users: name who they are in spec.oidcConfigRef")

// RateLimitError is why spec.rateLimiting cannot be followed; nil if it can, or is not there.
func RateLimitError(s *v1beta1.MCPServerSpec) error {
	if _, wrong := rateLimitsOf(s); wrong != nil {
		return wrong
	}
	return nil
}

// rateLimitsOf are nil without any.
func rateLimitsOf(s *v1beta1.MCPServerSpec) (*rateLimits, *InvalidError) {
	const field = "rateLimiting"
	if s.RateLimiting == nil {
		return nil, nil
	}
	limits := &rateLimits{}
	if err := decodeField(field, s.RateLimiting, limits); err != nil {
		return nil, err
	}
	switch {
	case limits.Shared == nil && limits.PerUser == nil && len(limits.Tools) == 0:
		return nil, invalid(field, "it limits nothing: name shared, perUser or tools")
	case s.SessionStorage == nil || s.SessionStorage.Provider != "redis":
		return nil, invalid(field, "what is counted is kept in spec.sessionStorage: name one with provider redis")
	case limits.perUser() && s.OIDCConfigRef == nil:
		return nil, &InvalidError{Field: field, Err: ErrNoUsers}
	}
	return limits, nil
}

// addRateLimits comes after addSessions: what is counted is kept in the store of sessions.
func (p *Proxy) addRateLimits(srv *v1beta1.MCPServer, _ Objects) *InvalidError {
	limits, wrong := rateLimitsOf(&srv.Spec)
	if wrong != nil || limits == nil || p.Config.Scaling == nil {
		return wrong
	}
	p.Config.RateLimit, p.Config.RateLimitNamespace = limits, srv.Namespace
	return nil
}

func rateLimitParameters(rc *RunConfig) parameters {
	if rc.RateLimit == nil {
		return nil
	}
	values := parameters{"namespace": rc.RateLimitNamespace, "server_name": rc.Name, "config": rc.RateLimit, "redis_addr": rc.Scaling.Redis.Address}
	if db := rc.Scaling.Redis.DB; db != 0 {
		values["redis_db"] = db
	}
	if tls := rc.Scaling.Redis.TLS; tls != nil {
		values["redis_tls"] = tls
	}
	return values
}
