package builtin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/phasegate/phasegate/controllers/runner"
	"github.com/phasegate/phasegate/fsm"
)

var httpRequestSpec = fsm.ActionSpec{
	Doc: "Makes an HTTP request to a host that the manager allows (--allow-http-host; none by default). Any answer is a success: look at result.status. " +
		"What is written in the machine file is readable: for a password or token, write {secret: {name: NAME, key: KEY}} in place of a header, of the body or of any value in it, with format: 'Bearer %s' where more is needed. The Secret is read at the call, in the object's namespace, and is in no result, status or message. " +
		"Of the answer's body, result.body has at most 8 KiB; result.truncated says that there was more. It is called at its poll, whatever wakes the object. It follows no redirects: they are answers. The header Idempotency-Key is the same when the same request is repeated, after a crash or by poll, and another one for another step, visit of the phase or body; a reference to a secret counts, not its value.",
	Params: map[string]fsm.Param{
		"url":     {Type: fsm.TypeString, Required: true, Check: isURL, Doc: "http or https, without user and password"},
		"method":  {Type: fsm.TypeString, Check: isMethod, Doc: "default GET"},
		"headers": {Type: fsm.TypeObject, Check: areHeaders, Secrets: fsm.SecretsAnywhere, Doc: "texts by name, or references to secrets; at most 32"},
		"body":    {Type: fsm.TypeAny, Secrets: fsm.SecretsAnywhere, Doc: "a text, or content that is sent as JSON, with references to secrets at any depth; at most 64 KiB"},
		"secretOutputs": {Type: fsm.TypeObject, Check: areSecretOutputs, Keeps: true, Empties: []string{"body"}, Doc: "by name, what of the answer nobody may read: body, or a part of its JSON such as body.data.key or body.chain.0; at most 16, of at most 256 KiB. " +
			"They are kept in a Secret, for {secretOutput: NAME} in later steps; result.body is empty then. A status of 2xx without one of them is waited with"},
		"namespace": {Type: fsm.TypeString, Doc: "of the Secret with secretOutputs, where the object has none"},
		"timeout":   {Type: fsm.TypeDuration, Check: isExchange, Doc: "for the whole exchange; default 10s, at most 30s"},
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
	keeps, limit := c.with["secretOutputs"] != nil, int64(maxAnswer)
	if keeps {
		limit = maxSecretAnswer
	}
	data, err := io.ReadAll(io.LimitReader(answer.Body, limit+1))
	if err != nil {
		return nil, bare(req, err)
	}
	if keeps {
		return c.keepAnswer(ctx, answer.StatusCode, data)
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
	// The key tells bodies apart by what the file says: from the hash of one with a value, a short value could be guessed.
	written, _, err := bodyText(c.with["body"])
	if err != nil {
		return nil, err
	}
	content, err := c.reveal(ctx, c.with["body"])
	if err != nil {
		return nil, err
	}
	body, isJSON, err := bodyText(content)
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
	req.Header.Set("Idempotency-Key", c.visitKey(c.stepID, method, target.String(), written))
	return req, c.setHeaders(ctx, req.Header)
}

func (c *call) setHeaders(ctx context.Context, header http.Header) error {
	headers := c.with.Object("headers")
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		value, err := c.reveal(ctx, headers[name])
		if err != nil {
			return err
		}
		text, _ := value.(string)
		if ref, _ := fsm.AsSecretRef(headers[name]); ref != nil {
			text = strings.TrimRight(text, "\r\n") // a file that a Secret was made of ends with one
			if !httpguts.ValidHeaderFieldValue(text) {
				return fsm.Terminal("SecretUnusable", "%s cannot be sent as header %s: it has a line break or another control character in it: correct the Secret", ref, name)
			}
		}
		header.Set(name, text)
	}
	return nil
}

func bodyText(body any) (text string, isJSON bool, err error) {
	switch body := body.(type) {
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
