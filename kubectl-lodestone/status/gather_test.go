package status

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/pkg/clients"
)

// tenants is an API server that lets its user read pods and claims of namespace shop, and nothing else. Pod gone is listed, and gone
// when it is looked at.
func tenants(w http.ResponseWriter, r *http.Request) {
	answer := func(code int, object any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(object)
	}
	pod := func(name string) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Finalizers: []string{"lodestone.dev/remote-pod"}},
			Spec: corev1.PodSpec{NodeName: "west"}, Status: corev1.PodStatus{Phase: corev1.PodPending, Message: "it is full there"}}
	}
	const shop = "/api/v1/namespaces/shop"
	switch r.URL.Path {
	case "/apis/lodestone.dev/v1alpha1":
		answer(http.StatusOK, metav1.APIResourceList{APIResources: []metav1.APIResource{{Name: "remoteclusters"}}})
	case shop + "/pods":
		answer(http.StatusOK, corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: []corev1.Pod{pod("gone"),
			pod("web")}})
	case shop + "/pods/web":
		answer(http.StatusOK, pod("web"))
	case shop + "/pods/gone":
		answer(http.StatusNotFound, apierrors.NewNotFound(corev1.Resource("pods"), "gone").Status())
	default:
		answer(http.StatusForbidden, apierrors.NewForbidden(corev1.Resource(r.URL.Path), "", nil).Status())
	}
}

func TestStatusIsForTenantsTooAndForWhatIsGoneMeanwhile(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(tenants))
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL}
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	remotes, err := clients.NewRemoteClusters(config)
	require.NoError(t, err)
	moves, err := clients.NewVolumeMoveClient(config)
	require.NoError(t, err)
	r := &reading{home: &cli.Cluster{Context: "home", Config: config, Client: client, Remotes: remotes, Moves: moves},
		lodestone: "lodestone-system"}

	shown, err := r.status(t.Context(), only{namespace: "shop"})
	require.NoError(t, err, "what may not be read is left out, and a pod that is gone does not wait")
	assert.Contains(t, shown.Unread, "remoteclusters")
	assert.NotContains(t, shown.Unread, "pods", "those of the namespace were read")
	require.Len(t, shown.Waiting, 1)
	assert.Equal(t, "web", shown.Waiting[0].Name)
	assert.Contains(t, shown.Waiting[0].Why, "it is full there")

	_, err = (&reading{home: r.home, lodestone: r.lodestone}).status(t.Context(), only{})
	require.ErrorContains(t, err, "you may not list any of remoteclusters, nodes, persistentvolumes, pods, ")
	require.ErrorContains(t, err, "ask its administrator for that right, or give -n with a namespace of yours")
	var out bytes.Buffer
	shown.Clusters, shown.Waiting = nil, nil
	require.NoError(t, tables(&out, shown, false, now))
	assert.Equal(t, "You may not read which remote clusters there are.\n", out.String())
}
