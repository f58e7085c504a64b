package toolhive

import (
	"cmp"
	"fmt"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
)

const (
	// Where a pod has the certificate of the API server's authority, and its own token.
	clusterCA    = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"
	clusterToken = "/var/run/secrets/kubernetes.io/serviceaccount/token" //nolint:gosec // a path
	// clusterIssuer is who issues the tokens of ServiceAccounts, where nobody says more.
	clusterIssuer = "https://kubernetes.default.svc"

	oidcCADir    = "/config/certs/"
	oidcCAVolume = "oidc-ca-bundle-"
	caKey        = "ca.crt"

	oidcSecretEnv = "TOOLHIVE_OIDC_CLIENT_SECRET" //nolint:gosec // the name of a variable
)

// OIDC is who may come in. The program gives its fields no other names in JSON.
type OIDC struct {
	Issuer, Audience, JWKSURL, ClientID string
	// ClientSecret is always empty: the program takes it from a variable.
	ClientSecret              string
	CACertPath, AuthTokenFile string
	AllowPrivateIP            bool
	InsecureAllowHTTP         bool
	IntrospectionURL          string
	ResourceURL               string
	Scopes                    []string
}

// oidcRef is spec.oidcConfigRef.
type oidcRef struct {
	Name        string   `json:"name"`
	Audience    string   `json:"audience"`
	Scopes      []string `json:"scopes"`
	ResourceURL string   `json:"resourceUrl"`
}

// oidcSpec is the spec of an MCPOIDCConfig.
type oidcSpec struct {
	Type    string         `json:"type"`
	Cluster *clusterIssued `json:"kubernetesServiceAccount"`
	Inline  *inlineIssued  `json:"inline"`
}

// clusterIssued are tokens of ServiceAccounts. Which account they are of is not asked.
type clusterIssued struct {
	ServiceAccount   string `json:"serviceAccount"`
	Namespace        string `json:"namespace"`
	Issuer           string `json:"issuer"`
	JWKSURL          string `json:"jwksUrl"`
	IntrospectionURL string `json:"introspectionUrl"`
	UseClusterAuth   *bool  `json:"useClusterAuth"`
}

// inlineIssued are tokens of any other issuer.
type inlineIssued struct {
	Issuer            string     `json:"issuer"`
	JWKSURL           string     `json:"jwksUrl"`
	IntrospectionURL  string     `json:"introspectionUrl"`
	ClientID          string     `json:"clientId"`
	ClientSecretRef   *SecretKey `json:"clientSecretRef"`
	CABundleRef       *caBundle  `json:"caBundleRef"`
	JWKSAuthTokenPath string     `json:"jwksAuthTokenPath"`
	JWKSAllowPrivate  bool       `json:"jwksAllowPrivateIP"`
	ResourcePrivate   bool       `json:"protectedResourceAllowPrivateIP"`
	InsecureAllowHTTP bool       `json:"insecureAllowHTTP"`
}

type caBundle struct {
	ConfigMapRef *ConfigMapKey `json:"configMapRef"`
}

// key is the certificate's place; false if there is none.
func (b *caBundle) key() (ConfigMapKey, bool) {
	if b == nil || b.ConfigMapRef == nil {
		return ConfigMapKey{}, false
	}
	at := *b.ConfigMapRef
	at.Key = cmp.Or(at.Key, caKey)
	return at, true
}

func (p *Proxy) addOIDC(srv *v1beta1.MCPServer, named Objects) *InvalidError {
	const field = "oidcConfigRef"
	if srv.Spec.OIDCConfigRef == nil {
		return nil
	}
	var ref oidcRef
	var spec oidcSpec
	if err := decodeField(field, srv.Spec.OIDCConfigRef, &ref); err != nil {
		return err
	}
	if err := decodeSpec(field, named.OIDC, &spec); err != nil {
		return err
	}
	oidc := OIDC{Audience: ref.Audience, Scopes: ref.Scopes, ResourceURL: cmp.Or(ref.ResourceURL, resourceURL(srv))}
	switch {
	case ref.Audience == "":
		return invalid(field, "audience is empty, so that tokens for any other server would be accepted: name that of this server")
	case spec.Type == "kubernetesServiceAccount":
		ofCluster(&oidc, cmp.Or(spec.Cluster, &clusterIssued{}))
	case spec.Type == "inline" && spec.Inline != nil && spec.Inline.Issuer != "":
		p.ofIssuer(&oidc, spec.Inline)
	default:
		return invalid(field, "MCPOIDCConfig %s has type %q without what that needs: inline with an issuer, or kubernetesServiceAccount", ref.Name, spec.Type)
	}
	p.Config.OIDC, p.Config.CABundle, p.Config.JWKSAuthTokenFile = &oidc, oidc.CACertPath, oidc.AuthTokenFile
	return nil
}

// resourceURL is what the program says of itself to clients that ask where they are.
func resourceURL(srv *v1beta1.MCPServer) string {
	return fmt.Sprintf("http://%s.%s.svc.cluster.local:%d", v1beta1.ProxyServiceName(srv.Name), srv.Namespace, cmp.Or(srv.Spec.ProxyPort, 8080))
}

func ofCluster(oidc *OIDC, from *clusterIssued) {
	oidc.Issuer, oidc.JWKSURL, oidc.IntrospectionURL = cmp.Or(from.Issuer, clusterIssuer), from.JWKSURL, from.IntrospectionURL
	if from.UseClusterAuth == nil || *from.UseClusterAuth {
		oidc.CACertPath, oidc.AuthTokenFile, oidc.AllowPrivateIP = clusterCA, clusterToken, true
	}
}

func (p *Proxy) ofIssuer(oidc *OIDC, from *inlineIssued) {
	oidc.Issuer, oidc.JWKSURL, oidc.IntrospectionURL, oidc.ClientID = from.Issuer, from.JWKSURL, from.IntrospectionURL, from.ClientID
	oidc.AuthTokenFile, oidc.AllowPrivateIP, oidc.InsecureAllowHTTP = from.JWKSAuthTokenPath, from.JWKSAllowPrivate, from.InsecureAllowHTTP
	if from.ClientSecretRef != nil {
		p.addEnv(oidcSecretEnv, *from.ClientSecretRef)
	}
	if at, ok := from.CABundleRef.key(); ok {
		dir := oidcCADir + at.Name
		p.addFile(oidcCAVolume+at.Name, dir, at)
		oidc.CACertPath = dir + "/" + at.Key
	}
}
