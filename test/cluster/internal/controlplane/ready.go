package controlplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// waitLimit is how long one server may take to do its part. A cold machine
// needs seconds; a minute means that it never will.
const waitLimit = time.Minute

// probe asks the API server of one cluster whether it is ready.
type probe struct {
	url    string
	client *http.Client
}

// newProbe uses the credentials of the administrator.
func newProbe(l layout, url string) (*probe, error) {
	pair, err := tls.LoadX509KeyPair(l.pki("admin.crt"), l.pki("admin.key"))
	if err != nil {
		return nil, fmt.Errorf("load the administrator's credentials: %w", err)
	}
	authority, err := os.ReadFile(l.pki("ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("load the authority's certificate: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	transport := &http.Transport{TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots}}
	return &probe{url: url, client: &http.Client{Transport: transport, Timeout: 5 * time.Second}}, nil
}

// get returns the answer to a path, or an error unless it is 200.
func (p *probe) get(ctx context.Context, path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+path, nil)
	if err != nil {
		return nil, err
	}
	response, err := p.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", path, response.Status)
	}
	return body, nil
}

// serving is met when the API server takes requests.
func (p *probe) serving(ctx context.Context) error {
	_, err := p.get(ctx, "/readyz")
	return err
}

// controlling is met when pods can be created in the default namespace, which
// needs the service account that the controller manager makes.
func (p *probe) controlling(ctx context.Context) error {
	_, err := p.get(ctx, "/api/v1/namespaces/default/serviceaccounts/default")
	return err
}

// nodesReady is met when want nodes are Ready. The taint of a new node goes by
// itself only where there is a controller manager, which untaint says.
func (p *probe) nodesReady(want int, untaint bool) func(context.Context) error {
	return func(ctx context.Context) error {
		body, err := p.get(ctx, "/api/v1/nodes")
		if err != nil {
			return err
		}
		ready, err := countReady(body, untaint)
		if err == nil && ready < want {
			err = fmt.Errorf("%d of %d nodes are ready", ready, want)
		}
		return err
	}
}

// countReady counts the Ready nodes of a list, without those that still have a
// taint if untaint says so.
func countReady(list []byte, untaint bool) (int, error) {
	var nodes struct {
		Items []struct {
			Spec struct {
				Taints []struct{ Key string }
			}
			Status struct {
				Conditions []struct{ Type, Status string }
			}
		}
	}
	if err := json.Unmarshal(list, &nodes); err != nil {
		return 0, fmt.Errorf("read the list of nodes: %w", err)
	}
	ready := 0
	for _, node := range nodes.Items {
		if untaint && len(node.Spec.Taints) > 0 {
			continue
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == "Ready" && condition.Status == "True" {
				ready++
			}
		}
	}
	return ready, nil
}
