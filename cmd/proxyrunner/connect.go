package main

import (
	"cmp"
	"context"
	"net"
	"net/url"
	"strconv"

	"github.com/phasegate/phasegate/api/toolhive/runconfig"
	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/attach"
	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/bridge"
	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/config"
	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/kube"
	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/limit"
	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/relay"
	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/streamable"
	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/supervise"
	"github.com/phasegate/phasegate/controllers/mcpserver/backend"
)

// The manager lets no spec pass that asks for more than the proxy can hold.
const _ = uint(limit.MaxBody - runconfig.MaxRequestBody)

// connector makes what reaches the server: a bridge to its standard input and
// output, or a relay to where it listens.
func (o options) connector(l *config.Loaded, access *kube.Access) func(host string) supervise.Connection {
	run := l.Run
	requests, answers := limit.NewBudget(limit.Total).Bound(run.MaxRequestBodySize), limit.NewBudget(limit.Total)
	state := limit.NewShares(bridge.StateBytes)
	serving := bridge.Options{EndpointPrefix: run.EndpointPrefix, TrustProxyHeaders: run.TrustProxyHeaders,
		SessionTTL: l.SessionTTL, RequestTimeout: o.timeout, Requests: requests, Answers: answers, State: state, Log: o.log}
	if run.Transport == v1beta1.TransportStdio {
		return func(string) supervise.Connection {
			server := serving
			server.Open = attach.Opener(access.Config, access.Namespace, run.Name)
			server.Restart = attach.Restarter(access.Client, access.Namespace, run.Name)
			server.Mode = run.ProxyMode
			return bridge.New(server)
		}
	}
	return func(host string) supervise.Connection {
		address := net.JoinHostPort(cmp.Or(run.TargetHost, host), strconv.Itoa(int(run.TargetPort)))
		var backends func(context.Context) ([]string, error)
		if run.TargetHost == "" {
			backends = func(ctx context.Context) ([]string, error) {
				return backend.Hosts(ctx, access.Client, access.Namespace, run.Name, run.TargetPort)
			}
		}
		server := relay.New(relay.Options{
			Target: &url.URL{Scheme: "http", Host: address}, Backends: backends, SSE: run.Transport == v1beta1.TransportSSE,
			EndpointPrefix: run.EndpointPrefix, TrustProxyHeaders: run.TrustProxyHeaders, Requests: requests, Log: o.log,
		})
		if run.Transport == v1beta1.TransportSSE {
			return streamable.New(server, serving)
		}
		return server
	}
}
