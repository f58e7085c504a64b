package builtin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/phasegate/phasegate/controllers/runner"
	"github.com/phasegate/phasegate/fsm"
)

var httpRequestSpec = fsm.ActionSpec{
	Doc: "Makes an HTTP request to a host that the manager allows (--allow-http-host; none by default). Any answer is a success: look at result.status. " +
		"Parameters are readable in the machine file and values cannot come from a Secret yet, so give no passwords. " +
		"Of the answer's body, result.body has at most 8 KiB; result.truncated says that there was more. It is called at its poll, whatever wakes the object. It follows no redirects: they are answers. The header Idempotency-Key is the same when the same request is repeated, after a crash or by poll, and another one for another step, visit of the phase or body.",
	Params: map[string]fsm.Param{
		"url":     {Type: fsm.TypeString, Required: true, Check: isURL, Doc: "http or https, without user and password"},
		"method":  {Type: fsm.TypeString, Check: isMethod, Doc: "default GET"},
		"headers": {Type: fsm.TypeObject, Check: areHeaders, Doc: "texts by name, at most 32"},
		"body":    {Type: fsm.TypeAny, Doc: "a text, or content that is sent as JSON; at most 64 KiB"},
		"timeout": {Type: fsm.TypeDuration, Check: isExchange, Doc: "for the whole exchange; default 10s, at most 30s"},
	},
	Outputs:  map[string]fsm.Type{"status": fsm.TypeInt, "body": fsm.TypeString, "truncated": fsm.TypeBool},
	External: true,
}

const (
	maxHeaders     = 32
	maxRequestBody = 64 << 10
	// maxAnswer is how many bytes of an answer go into the result, as JSON.
	maxAnswer       = 8 << 10
	defaultExchange = 10 * time.Second
	maxExchange     = 30 * time.Second
)

func httpRequest(ctx context.Context, c *call) (outputs, error) {
	ctx, cancel := context.WithTimeout(ctx, c.with.Duration("timeout", defaultExchange))
	defer cancel()
	req, err := c.request(ctx)
	if err != nil {
		return nil, err
	}
	transport := c.HTTP.transport()
	defer transport.CloseIdleConnections()
	exchange := &http.Client{Transport: transport, CheckRedirect: noRedirect}
	answer, err := exchange.Do(req)
	if err != nil {
		return nil, bare(req, err)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer+1))
	if err != nil {
		return nil, bare(req, err)
	}
	body, truncated := fit(string(data), maxAnswer)
	return outputs{"status": int64(answer.StatusCode), "body": body, "truncated": truncated}, nil
}

// request is checked before anything is sent; what is connected to is checked
// by the transport.
func (c *call) request(ctx context.Context) (*http.Request, error) {
	target, err := url.Parse(c.with.String("url", ""))
	if err != nil { // its text would hold the whole URL
		return nil, fsm.Terminal("BadParameter", "url cannot be read: write https://host/path")
	}
	if err := c.HTTP.allows(target); err != nil {
		return nil, err
	}
	method := strings.ToUpper(c.with.String("method", http.MethodGet))
	body, isJSON, err := c.requestBody()
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, target.String(), strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if isJSON {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("User-Agent", reporter)
	req.Header.Set("Idempotency-Key", c.visitKey(c.stepID, method, target.String(), body))
	for name, value := range c.with.Object("headers") {
		text, _ := value.(string)
		req.Header.Set(name, text)
	}
	return req, nil
}

func (c *call) requestBody() (text string, isJSON bool, err error) {
	switch body := c.with["body"].(type) {
	case nil:
	case string:
		text = body
	default:
		data, err := json.Marshal(body)
		if err != nil {
			return "", false, fsm.Terminal("BadParameter", "body is not JSON: %w: write a text or an object", err)
		}
		text, isJSON = string(data), true
	}
	if len(text) > maxRequestBody {
		return "", false, fsm.Terminal("BadParameter", "body is %d bytes, more than %d: send less", len(text), maxRequestBody)
	}
	return text, isJSON, nil
}

// noRedirect makes a redirect the answer: it leads to where nobody has allowed requests, or makes a GET of a POST.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// bare is the cause of a failed exchange without the URL, whose path and query
// may hold what nobody else should read.
func bare(req *http.Request, err error) error {
	if whole, is := errors.AsType[*url.Error](err); is {
		err = whole.Err
	}
	return fmt.Errorf("%s %s://%s: %w", req.Method, req.URL.Scheme, req.URL.Host, err)
}

// fit cuts a text until it needs at most limit bytes as JSON.
func fit(text string, limit int) (short string, truncated bool) {
	short = strings.ToValidUTF8(text, "�")
	for {
		data, err := json.Marshal(short)
		if err != nil || len(data) <= limit {
			return short, truncated
		}
		short, truncated = runner.Cut(short, len(short)*limit/len(data)), true
	}
}
