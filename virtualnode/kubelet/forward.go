package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/virtualnode/session"
)

// passed are the headers that travel: those that make a stream. Above all no
// credentials of the home cluster do.
var passed = []string{"Connection", "Upgrade", "X-Stream-Protocol-Version", "Sec-Websocket-Key", "Sec-Websocket-Version",
	"Sec-Websocket-Protocol", "Sec-Websocket-Extensions", "Content-Type", "Content-Length", "Accept", "Origin"}

// forward passes a call on to the remote cluster's API server, with home's
// identity there. Streams have no time limit; they end with either side, or with
// the endpoint.
func (e *endpoint) forward(w http.ResponseWriter, r *http.Request, s *session.Session, c *call) {
	target, connections, upgrades, err := reach(s.Config)
	if err != nil {
		http.Error(w, fmt.Sprintf("the kubeconfig of cluster %s cannot be used: %v", s.Cluster, err), http.StatusInternalServerError)
		return
	}
	defer connections.CloseIdleConnections()
	target.Path = strings.TrimSuffix(target.Path, "/") + c.location(s.Namespace(c.namespace))
	target.RawQuery = c.query.Encode()
	out := r.Clone(r.Context())
	out.URL = target
	out.Header = http.Header{}
	for _, name := range passed {
		if values := r.Header.Values(name); len(values) > 0 {
			out.Header[http.CanonicalHeaderKey(name)] = values
		}
	}
	if connection, ok := r.Context().Value(connectionKey{}).(net.Conn); ok {
		// The server forgets a connection that was taken over for a stream.
		defer context.AfterFunc(e.serving, func() { _ = connection.Close() })()
	}
	handler := proxy.NewUpgradeAwareHandler(target, readable{upgrades.plain}, false, c.stream, responder{cluster: s.Cluster})
	handler.UpgradeTransport = upgrades.stream
	handler.UseRequestLocation = true
	handler.UseLocationHost = true
	handler.RejectForwardingRedirects = true
	handler.FlushInterval = -1 // a line of a log is shown as it comes
	handler.ServeHTTP(w, out)
}

// transports are how a call reaches an API server: in plain, or as a stream.
type transports struct {
	plain  http.RoundTripper
	stream proxy.UpgradeRequestRoundTripper
}

// reach returns where an API server is and how calls get there, over HTTP/1.1,
// for HTTP/2 knows no upgrades.
func reach(config *rest.Config) (*url.URL, *http.Transport, *transports, error) {
	target, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, nil, nil, err
	}
	settings, err := config.TransportConfig()
	if err != nil {
		return nil, nil, nil, err
	}
	security, err := transport.TLSConfigFor(settings)
	if err != nil {
		return nil, nil, nil, err
	}
	connections := utilnet.SetOldTransportDefaults(&http.Transport{
		TLSClientConfig: security,
		DialContext:     (&net.Dialer{Timeout: askTimeout, KeepAlive: 15 * time.Second}).DialContext,
	})
	plain, err := transport.HTTPWrappersForConfig(settings, connections)
	if err != nil {
		return nil, nil, nil, err
	}
	identify, err := transport.HTTPWrappersForConfig(settings, proxy.MirrorRequest)
	if err != nil {
		return nil, nil, nil, err
	}
	return target, connections, &transports{plain: plain, stream: proxy.NewUpgradeRequestRoundTripper(connections, identify)}, nil
}

// readable makes a sentence of the Status object that an API server answers with.
type readable struct{ http.RoundTripper }

func (t readable) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.RoundTripper.RoundTrip(r)
	if err != nil || response.StatusCode < 400 {
		return response, err
	}
	const most = 1 << 16
	body, err := io.ReadAll(io.LimitReader(response.Body, most))
	if closing := response.Body.Close(); err == nil {
		err = closing
	}
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	var status metav1.Status
	if json.Unmarshal(body, &status) == nil && status.Message != "" {
		body = []byte(status.Message)
		response.Header.Set("Content-Type", "text/plain; charset=utf-8")
	}
	response.Body = io.NopCloser(strings.NewReader(string(body)))
	response.ContentLength = int64(len(body))
	response.Header.Set("Content-Length", strconv.Itoa(len(body)))
	return response, nil
}

// responder answers when the remote cluster did not.
type responder struct{ cluster string }

func (r responder) Error(w http.ResponseWriter, request *http.Request, err error) {
	klog.FromContext(request.Context()).V(2).Info("A request could not be passed on", "cluster", r.cluster, "err", err)
	http.Error(w, fmt.Sprintf("the request could not be passed on to cluster %s: %v", r.cluster, err), http.StatusBadGateway)
}
