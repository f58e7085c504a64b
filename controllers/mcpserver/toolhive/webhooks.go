package toolhive

import (
	"hash/fnv"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/dump"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
)

const (
	webhookDir = "/etc/toolhive/webhooks/"
	// The bounds of the time that a webhook may take.
	webhookLeast, webhookMost = time.Second, 30 * time.Second
)

// Webhook is asked about each request.
type Webhook struct {
	Name string `json:"name"`
	URL  string `json:"url"`
	// Timeout is in nanoseconds; 0 is the program's default, 10 seconds.
	Timeout       time.Duration `json:"timeout"`
	FailurePolicy string        `json:"failure_policy"`
	TLS           *WebhookTLS   `json:"tls_config,omitempty"`
	// HMACFile is where the proxy has the key that requests are signed with.
	HMACFile string `json:"hmac_secret_ref,omitempty"`
}

// WebhookTLS are files of the proxy.
type WebhookTLS struct {
	CABundle           string `json:"ca_bundle_path,omitempty"`
	ClientCert         string `json:"client_cert_path,omitempty"`
	ClientKey          string `json:"client_key_path,omitempty"`
	InsecureSkipVerify bool   `json:"insecure_skip_verify,omitempty"`
}

// webhookSpec is the spec of an MCPWebhookConfig.
type webhookSpec struct {
	Validating []webhook `json:"validating"`
	Mutating   []webhook `json:"mutating"`
}

type webhook struct {
	Name          string     `json:"name"`
	URL           string     `json:"url"`
	Timeout       string     `json:"timeout"`
	FailurePolicy string     `json:"failurePolicy"`
	HMACSecretRef *SecretKey `json:"hmacSecretRef"`
	TLSConfig     *struct {
		CA                 *SecretKey `json:"caSecretRef"`
		ClientCert         *SecretKey `json:"clientCertSecretRef"`
		ClientKey          *SecretKey `json:"clientKeySecretRef"`
		InsecureSkipVerify bool       `json:"insecureSkipVerify"`
	} `json:"tlsConfig"`
}

func (p *Proxy) addWebhooks(srv *v1beta1.MCPServer, named Objects) (err *InvalidError) {
	const field = "webhookConfigRef"
	if srv.Spec.WebhookConfigRef == nil {
		return nil
	}
	var spec webhookSpec
	if err := decodeSpec(field, named.Webhook, &spec); err != nil {
		return err
	}
	if len(spec.Validating)+len(spec.Mutating) == 0 {
		return invalid(field, "MCPWebhookConfig %s has no webhook: add one, or remove the reference", named.Webhook.GetName())
	}
	for _, w := range spec.Validating {
		made, wrong := p.webhook("validating", w)
		if wrong != "" {
			return invalid(field, "MCPWebhookConfig %s: webhook %s: %s", named.Webhook.GetName(), w.Name, wrong)
		}
		p.Config.ValidatingWebhooks = append(p.Config.ValidatingWebhooks, made)
	}
	for _, w := range spec.Mutating {
		made, wrong := p.webhook("mutating", w)
		if wrong != "" {
			return invalid(field, "MCPWebhookConfig %s: webhook %s: %s", named.Webhook.GetName(), w.Name, wrong)
		}
		p.Config.MutatingWebhooks = append(p.Config.MutatingWebhooks, made)
	}
	return nil
}

// webhook makes one, and mounts its secrets; or it tells what is wrong.
func (p *Proxy) webhook(kind string, from webhook) (Webhook, string) {
	made := Webhook{Name: from.Name, URL: from.URL, FailurePolicy: "fail"}
	if from.FailurePolicy != "" {
		made.FailurePolicy = strings.ToLower(from.FailurePolicy)
	}
	if from.Timeout != "" {
		timeout, err := time.ParseDuration(from.Timeout)
		if err != nil || timeout < webhookLeast || timeout > webhookMost {
			return made, "its timeout is " + from.Timeout + ": write one from 1s to 30s"
		}
		made.Timeout = timeout
	}
	file := func(purpose, name string, key *SecretKey) string {
		if key == nil {
			return ""
		}
		return p.addSecretFile(webhookID(kind, from.Name, purpose, *key), name, *key)
	}
	if wrong := webhookProblem(from, made); wrong != "" {
		return made, wrong
	}
	made.HMACFile = file("hmac", "hmac", from.HMACSecretRef)
	if tls := from.TLSConfig; tls != nil {
		made.TLS = &WebhookTLS{
			InsecureSkipVerify: tls.InsecureSkipVerify, CABundle: file("tls_ca", "ca.crt", tls.CA),
			ClientCert: file("tls_client_cert", "tls.crt", tls.ClientCert), ClientKey: file("tls_client_key", "tls.key", tls.ClientKey),
		}
	}
	return made, ""
}

// webhookProblem is what the program would not start with.
func webhookProblem(from webhook, made Webhook) string {
	at, err := url.ParseRequestURI(from.URL)
	insecure := from.TLSConfig != nil && from.TLSConfig.InsecureSkipVerify
	switch {
	case from.Name == "" || err != nil || at.Host == "":
		return "it needs a name and a url"
	case at.Scheme != "https" && !insecure:
		return "its url is not https, and tlsConfig.insecureSkipVerify is not true"
	case made.FailurePolicy != "fail" && made.FailurePolicy != "ignore":
		return "its failurePolicy is " + from.FailurePolicy + ": write fail or ignore"
	case from.TLSConfig != nil && (from.TLSConfig.ClientCert == nil) != (from.TLSConfig.ClientKey == nil):
		return "a client certificate needs its key, and the key its certificate"
	}
	return ""
}

// webhookID tells the secrets of all webhooks apart, as ToolHive's operator does.
func webhookID(kind, name, purpose string, key SecretKey) string {
	text := strings.Join([]string{"webhook", kind, name, purpose, theirHash(key.Name + "/" + key.Key)}, "_")
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToLower(text))
}

// theirHash is the hash that ToolHive's operator names things by.
func theirHash(text string) string {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(dump.ForHash(text))) // it cannot fail
	return strconv.FormatUint(uint64(sum.Sum32()), 16)
}

// addSecretFile mounts a key of a Secret as one file, and answers its path.
func (p *Proxy) addSecretFile(id, name string, key SecretKey) string {
	volume, path := "whsec-"+theirHash(strings.ToUpper(id)), webhookDir+id+"/"+name
	if slices.ContainsFunc(p.Volumes, func(v corev1.Volume) bool { return v.Name == volume }) {
		return path
	}
	p.mountSecret(volume, path, key, nil)
	return path
}
