package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/virtualnode/session"
)

// forwardedHeaders are the headers that are sent to the remote cluster: those that open a stream.
// No others are, above all no credentials of the home cluster.
var forwardedHeaders = []string{"Connection", "Upgrade", "X-Stream-Protocol-Version", "Sec-Websocket-Key", "Sec-Websocket-Version",
	"Sec-Websocket-Protocol", "Sec-Websocket-Extensions", "Content-Type", "Content-Length", "Accept", "Origin"}

// forward sends a call to the remote cluster's API server, with home's credentials there. Streams
// have no time limit; they end with either side, or with the endpoint.
func (e *endpoint) forward(w http.ResponseWriter, r *http.Request, s *session.Session, c *call) {
	target, connections, upgrades, err := dialRoutes(s.Config)
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
	for _, name := range forwardedHeaders {
		if values := r.Header.Values(name); len(values) > 0 {
			out.Header[http.CanonicalHeaderKey(name)] = values
		}
	}
	if connection, ok := r.Context().Value(connectionKey{}).(net.Conn); ok {
		// The server no longer tracks a connection that was hijacked for a stream.
		defer context.AfterFunc(e.serving, func() { _ = connection.Close() })()
	}
	handler := proxy.NewUpgradeAwareHandler(target, plainErrors{upgrades.plain}, false, c.stream, responder{cluster: s.Cluster})
	handler.UpgradeTransport = upgrades.stream
	handler.UseRequestLocation = true
	handler.UseLocationHost = true
	handler.RejectForwardingRedirects = true
	handler.FlushInterval = -1 // flush each line of a log at once
	handler.ServeHTTP(w, out)
}

// transports are the ways to send a call to an API server: as a plain request, or as a stream.
type transports struct {
	plain  http.RoundTripper
	stream proxy.UpgradeRequestRoundTripper
}

// dialRoutes returns the URL of an API server and the transports to it. They speak HTTP/1.1, since
// HTTP/2 has no upgrades.
func dialRoutes(config *rest.Config) (*url.URL, *http.Transport, *transports, error) {
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

// plainErrors replaces the Status object in an error answer of an API server by its message.
type plainErrors struct{ http.RoundTripper }

func (t plainErrors) RoundTrip(r *http.Request) (*http.Response, error) {
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

// responder writes the answer when the remote cluster gave none.
type responder struct{ cluster string }

func (r responder) Error(w http.ResponseWriter, request *http.Request, err error) {
	klog.FromContext(request.Context()).V(2).Info("A request could not be passed on", "cluster", r.cluster, "err", err)
	http.Error(w, fmt.Sprintf("the request could not be passed on to cluster %s: %v", r.cluster, err), http.StatusBadGateway)
}

// call is a request of the kubelet API that concerns one pod.
type call struct {
	namespace, pod, container string
	// uid is the UID of the pod, empty if the caller did not send it.
	uid types.UID
	// subresource is that of pods in the remote cluster, query has its parameters.
	subresource string
	query       url.Values
	// stream says that the connection is upgraded.
	stream bool
}

// logParameters are the parameters of logs; they have the same names for kubelet and API server.
var logParameters = []string{"follow", "previous", "sinceSeconds", "sinceTime", "timestamps", "tailLines", "limitBytes", "stream"}

// streamParameters are the parameters of exec and attach: from the names of kubelet to those of the
// API server.
var streamParameters = map[string]string{"input": "stdin", "output": "stdout", "error": "stderr", "tty": "tty"}

// translate reads the path and the parameters of a kubelet request. Unknown parameters are dropped.
// ok is false if the path is not about a pod.
func translate(path string, query url.Values) (_ call, ok bool, _ error) {
	verb, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	parts := strings.Split(rest, "/")
	var c call
	switch verb {
	case "containerLogs":
		c = call{subresource: "log", query: url.Values{}}
		for _, name := range logParameters {
			copyValues(c.query, name, query[name])
		}
	case "exec", "attach":
		c = call{subresource: verb, query: url.Values{}, stream: true}
		for theirs, ours := range streamParameters {
			// The API server sends 1, clients of the kubelet API send true.
			if value := query.Get(theirs); value == "1" || value == "true" {
				c.query.Set(ours, "true")
			}
		}
		if verb == "exec" {
			copyValues(c.query, "command", query["command"])
		}
	case "portForward":
		c = call{subresource: "portforward", query: url.Values{}, stream: true}
		copyValues(c.query, "ports", query["port"])
	default:
		return call{}, false, nil
	}
	hasContainer := verb != "portForward"
	if len(parts) < 2 {
		return call{}, true, fmt.Errorf("the path %q names no pod", path)
	}
	c.namespace, c.pod, parts = parts[0], parts[1], parts[2:]
	if hasContainer && len(parts) > 0 {
		c.container, parts = parts[len(parts)-1], parts[:len(parts)-1]
	}
	if len(parts) > 0 {
		c.uid, parts = types.UID(parts[0]), parts[1:]
	}
	return c, true, c.check(hasContainer, len(parts))
}

// check refuses names that would lead to another path in the remote cluster.
func (c *call) check(hasContainer bool, more int) error {
	switch {
	case len(validation.IsDNS1123Label(c.namespace)) > 0 || len(validation.IsDNS1123Subdomain(c.pod)) > 0 || more > 0:
		return fmt.Errorf("the path names no pod")
	case hasContainer && len(validation.IsDNS1123Label(c.container)) > 0:
		return fmt.Errorf("the path names no container")
	case c.subresource == "exec" && len(c.query["command"]) == 0:
		return fmt.Errorf("there is no command to run")
	}
	if hasContainer {
		c.query.Set("container", c.container)
	}
	return nil
}

func copyValues(to url.Values, name string, values []string) {
	if len(values) > 0 {
		to[name] = slices.Clone(values)
	}
}

// location is the path of a call in the remote cluster.
func (c *call) location(namespace string) string {
	return "/api/v1/namespaces/" + namespace + "/pods/" + c.pod + "/" + c.subresource
}
