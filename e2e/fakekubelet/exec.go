package fakekubelet

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// Execer is a Runner that runs commands in its pods, too.
type Execer interface {
	// Exec runs a command in a container, and returns its exit code. As a container runtime does, it leaves the command running when
	// whoever asked for it has gone.
	Exec(namespace, pod, container string, command []string, stdout, stderr io.Writer) (code int, err error)
}

// serveExec serves exec as kubelets do, for all nodes at one port, to who has a certificate of the cluster: its API server. Nothing else
// of a kubelet's API is served. It returns the port.
func (h *Kubelets) serveExec(execer Execer, authority []byte) (port int32, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return 0, fmt.Errorf("make the key of the simulated nodes: %w", err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "fakekubelet"},
		NotAfter: time.Now().Add(24 * time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return 0, fmt.Errorf("make the certificate of the simulated nodes: %w", err)
	}
	clients := x509.NewCertPool()
	if !clients.AppendCertsFromPEM(authority) {
		return 0, errors.New("the client configuration has no authority, by which the simulated nodes know the API server")
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{certificate}, PrivateKey: key}},
		ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: clients,
	})
	if err != nil {
		return 0, fmt.Errorf("serve exec: %w", err)
	}
	server := &http.Server{ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: callTimeout,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.exec(execer, w, r) })}
	h.done.Go(func() { _ = server.Serve(listener) })
	context.AfterFunc(h.ctx, func() { _ = server.Close() })
	return int32(listener.Addr().(*net.TCPAddr).Port), nil
}

// exec answers POST /exec/<namespace>/<pod>[/<uid>]/<container>?command=…&output=1&error=1.
func (h *Kubelets) exec(execer Execer, w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/exec/"), "/")
	if !strings.HasPrefix(r.URL.Path, "/exec/") || len(parts) != 3 && len(parts) != 4 {
		http.NotFound(w, r)
		return
	}
	namespace, name, container := parts[0], parts[1], parts[len(parts)-1]
	object, exists, err := h.pods.GetStore().GetByKey(namespace + "/" + name)
	pod, _ := object.(*corev1.Pod)
	if err != nil || !exists || len(parts) == 4 && parts[2] != string(pod.UID) {
		http.Error(w, "pod does not exist", http.StatusNotFound)
		return
	}
	if p := h.player(pod.Spec.NodeName); p == nil || !p.alive() {
		http.Error(w, "the kubelet is silent", http.StatusBadGateway)
		return
	}
	if _, err := httpstream.Handshake(r, w, []string{remotecommand.StreamProtocolV4Name}); err != nil {
		return
	}
	wanted := 1
	for _, kind := range []string{"input", "output", "error"} {
		if r.URL.Query().Get(kind) == "1" {
			wanted++
		}
	}
	came := make(chan httpstream.Stream, wanted)
	connection := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(stream httpstream.Stream, _ <-chan struct{}) error {
		select {
		case came <- stream:
			return nil
		default:
			return errors.New("more streams than were asked for")
		}
	})
	if connection == nil {
		return
	}
	defer func() { _ = connection.Close() }()
	streams := map[string]httpstream.Stream{}
	for len(streams) < wanted {
		select {
		case stream := <-came:
			streams[stream.Headers().Get(corev1.StreamType)] = stream
		case <-time.After(callTimeout):
			return
		}
	}
	writer := func(kind string) io.Writer {
		if streams[kind] == nil {
			return io.Discard
		}
		return deaf{streams[kind]}
	}
	code, err := execer.Exec(namespace, name, container, r.URL.Query()["command"], writer(corev1.StreamTypeStdout),
		writer(corev1.StreamTypeStderr))
	_ = json.NewEncoder(streams[corev1.StreamTypeError]).Encode(execStatus(code, err))
}

// deaf is a writer that goes on when nobody hears it any more, so that the command does.
type deaf struct{ to io.Writer }

func (d deaf) Write(said []byte) (int, error) {
	_, _ = d.to.Write(said)
	return len(said), nil
}

// execStatus is how a kubelet says what became of a command.
func execStatus(code int, err error) metav1.Status {
	switch {
	case err != nil:
		return metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonInternalError, Code: http.StatusInternalServerError,
			Message: "Internal error occurred: " + err.Error()}
	case code == 0:
		return metav1.Status{Status: metav1.StatusSuccess}
	}
	return metav1.Status{Status: metav1.StatusFailure, Reason: remotecommand.NonZeroExitCodeReason,
		Message: fmt.Sprintf("command terminated with non-zero exit code: exit status %d", code),
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: remotecommand.ExitCodeCauseType, Message: strconv.Itoa(code)}}}}
}
