package toolhive

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"
)

// browser is that of a user who approves. It keeps cookies, and finds every name at one address.
type browser struct {
	testing.TB
	*http.Client
}

func newBrowser(t testing.TB, address string) *browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, strings.TrimPrefix(address, "http://"))
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &browser{TB: t, Client: &http.Client{Jar: jar, Transport: transport}}
}

// leaves opens a page, follows its site's redirects, submits the form that the site may show
// (v0.63.0 asks for consent, v0.44.0 does not), and answers where it leads: on another site.
func (b *browser) leaves(page string) (location string) {
	b.Helper()
	req := b.request(http.MethodGet, page, nil)
	host := req.URL.Host
	b.CheckRedirect = func(next *http.Request, _ []*http.Request) error {
		if next.URL.Host != host {
			return http.ErrUseLastResponse
		}
		return nil
	}
	answer, text := b.load(req)
	if answer.StatusCode == http.StatusOK {
		action, fields, err := approval(text)
		if err != nil {
			b.Fatalf("%s: %v:\n%s", page, err, text)
		}
		req = b.request(http.MethodPost, action, strings.NewReader(fields.Encode()))
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Origin", req.URL.Scheme+"://"+req.URL.Host)
		answer, text = b.load(req)
	}
	location = answer.Header.Get("Location")
	if location == "" {
		b.Fatalf("%s %s leads nowhere: %s: %s", req.Method, req.URL, answer.Status, text)
	}
	return location
}

func (b *browser) request(method, address string, body io.Reader) *http.Request {
	b.Helper()
	req, err := http.NewRequestWithContext(b.Context(), method, address, body)
	if err != nil {
		b.Fatal(err)
	}
	return req
}

func (b *browser) load(req *http.Request) (*http.Response, string) {
	b.Helper()
	answer, err := b.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		b.Fatal(err)
	}
	return answer, string(text)
}

// approval is the form of a page as it is sent by a click on the button that approves.
func approval(page string) (action string, fields url.Values, err error) {
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		return "", nil, err
	}
	forms := 0
	fields = url.Values{}
	for node := range root.Descendants() {
		name, value := attribute(node, "name"), attribute(node, "value")
		switch {
		case node.Type != html.ElementNode:
		case node.Data == "form":
			forms++
			action = attribute(node, "action")
		case node.Data == "input" && attribute(node, "type") == "hidden", node.Data == "button" && value == "approve":
			fields.Add(name, value)
		}
	}
	if forms != 1 {
		return "", nil, fmt.Errorf("a page with %d forms", forms)
	}
	return action, fields, nil
}

func attribute(node *html.Node, name string) string {
	i := slices.IndexFunc(node.Attr, func(a html.Attribute) bool { return a.Key == name })
	if i < 0 {
		return ""
	}
	return node.Attr[i].Val
}
