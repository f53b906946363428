package virtualnodes

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// kubelet plays the kubelet of a node of west: it says what it was asked.
func kubelet(t *testing.T) (node string) {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status := http.StatusOK
		if r.URL.Path[:5] != "/cont" {
			// A stream that is refused tells as much, and needs no other end.
			status = http.StatusBadRequest
		}
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, "asked for %s %s", r.URL.Path, r.URL.Query().Encode())
	}))
	t.Cleanup(server.Close)
	nodes := bed.West.Client().CoreV1().Nodes()
	created := must.Create(t, nodes, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "west-kubelet-"},
		Status: corev1.NodeStatus{
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}},
			DaemonEndpoints: corev1.NodeDaemonEndpoints{
				KubeletEndpoint: corev1.DaemonEndpoint{Port: int32(server.Listener.Addr().(*net.TCPAddr).Port)},
			},
		}})
	t.Cleanup(func() {
		_, _ = bed.West.Kubectl(context.Background(), "", "delete", "node", created.Name, "--ignore-not-found")
	})
	return created.Name
}

// twins makes a pod on the virtual node and its pod in west, as the remote agent
// does.
func twins(t *testing.T) (namespace string) {
	t.Helper()
	namespace = testbed.Namespace(t, bed.Home, bed.West)
	home := bound(t, namespace, "db", fabric.WestNode)
	pod := fabric.NewPod(namespace, "db")
	pod.Labels = map[string]string{keys.HomeID: homeID, keys.PodUID: string(home.UID)}
	pod.Spec.NodeName = kubelet(t)
	must.Create(t, bed.West.Client().CoreV1().Pods(namespace), pod)
	must.Kubectl(t, bed.West, "", "label", "namespace", namespace, keys.HomeID+"="+homeID)
	require.NoError(t, bind(t.Context(), bed.West, homeID, namespace, "lodestone-home"))
	return namespace
}

func TestKubectlReachesThePodInTheOtherCluster(t *testing.T) {
	namespace := twins(t)
	var logs string
	await.Until(t, "its log is there", func() bool {
		var err error
		logs, err = bed.Home.Kubectl(t.Context(), "", "logs", "-n", namespace, "db", "--tail=5", "--timestamps")
		return err == nil
	}, func() any {
		_, err := bed.Home.Kubectl(t.Context(), "", "logs", "-n", namespace, "db", "--tail=5")
		return err
	})
	assert.Equal(t, "asked for /containerLogs/"+namespace+"/db/app tailLines=5&timestamps=true", logs)

	_, err := bed.Home.Kubectl(t.Context(), "", "exec", "-n", namespace, "db", "--", "sh", "-c", "echo $HOME")
	require.ErrorContains(t, err, "asked for /exec/"+namespace+"/db/app command=sh&command=-c&command=echo+%24HOME&error=1&output=1")
	_, err = bed.Home.Kubectl(t.Context(), "", "attach", "-n", namespace, "db")
	require.ErrorContains(t, err, "asked for /attach/"+namespace+"/db/app")
	_, err = bed.Home.Kubectl(t.Context(), "", "logs", "-n", namespace, "db", "-c", "none")
	require.Error(t, err)
}

// ask asks the kubelet API of west's node with a token. (The API server proxies to
// no node on loopback.)
func ask(t *testing.T, path, token string) (int, string) {
	t.Helper()
	port := nodeNow(t, fabric.WestNode).Status.DaemonEndpoints.KubeletEndpoint.Port
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d%s", port, path), nil)
	require.NoError(t, err)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	response, err := client.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(body)
}

func TestThePodsOfTheNodeAreShownToWhoMay(t *testing.T) {
	namespace := twins(t)
	token := bed.Home.AdminConfig().BearerToken
	await.Until(t, "the pod is listed", func() bool {
		status, pods := ask(t, "/pods", token)
		return status == http.StatusOK && strings.Contains(pods, namespace)
	}, func() any { _, pods := ask(t, "/pods", token); return pods })
	_, health := ask(t, "/healthz", token)
	assert.Equal(t, "ok", health)
	_, metrics := ask(t, "/metrics/resource", token)
	assert.Contains(t, metrics, "resource_scrape_error")
}

func TestStrangersAreNotServed(t *testing.T) {
	testbed.Require(t)
	extender, err := bed.Home.ServiceAccountConfig(t.Context(), fabric.System, "lodestone-extender")
	require.NoError(t, err)
	for token, want := range map[string]int{
		"": http.StatusUnauthorized, "forged": http.StatusUnauthorized,
		extender.BearerToken: http.StatusForbidden, bed.Home.AdminConfig().BearerToken: http.StatusOK,
	} {
		have, _ := ask(t, "/pods", token)
		assert.Equal(t, want, have)
	}
}

func TestTheServingCertificateIsThatOfTheClusterOnceItIsApproved(t *testing.T) {
	testbed.Require(t)
	shown := func() string {
		port := nodeNow(t, fabric.WestNode).Status.DaemonEndpoints.KubeletEndpoint.Port
		dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}
		connection, err := dialer.DialContext(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		require.NoError(t, err)
		defer connection.Close()
		return connection.(*tls.Conn).ConnectionState().PeerCertificates[0].Issuer.CommonName
	}
	assert.Equal(t, "system:node:west", shown(), "nobody approved one yet")
	requests := must.List(t, bed.Home.Client().CertificatesV1().CertificateSigningRequests())
	require.NotEmpty(t, requests.Items)
	for _, request := range requests.Items {
		assert.Equal(t, "kubernetes.io/kubelet-serving", request.Spec.SignerName)
		must.Kubectl(t, bed.Home, "", "certificate", "approve", request.Name)
	}
	await.Until(t, "the certificate is one of the cluster", func() bool { return shown() == "lodestone test bed home" },
		func() any { return shown() })
}
