package cli

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
)

func TestARequestThatFailsIsExplainedInOneSentence(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	asks := func(host string) error {
		client, err := kubernetes.NewForConfig(&rest.Config{Host: host})
		require.NoError(t, err)
		_, err = client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		return (&Cluster{Context: "home"}).Explain("list nodes", err)
	}
	assert.ErrorContains(t, asks(server.URL), `the certificate of the cluster of context "home" is not the one that the kubeconfig asks for (list nodes: `)
	server.Close()
	assert.ErrorContains(t, asks("https://127.0.0.1:1"), `the cluster of context "home" does not answer (list nodes: dial tcp 127.0.0.1:1: `+
		`connect: connection refused): check its address in the kubeconfig and the network`)

	c := &Cluster{Context: "home"}
	nodes := corev1.Resource("nodes")
	assert.ErrorContains(t, c.Explain("list nodes", apierrors.NewForbidden(nodes, "", nil)), `you may not list nodes in the cluster of context "home"`)
	quota := c.Explain("create claim data", apierrors.NewForbidden(nodes, "data", errors.New("exceeded quota: few, requested: pods=1")))
	assert.ErrorContains(t, quota, `cannot create claim data in the cluster of context "home", because a quota leaves no room: remove what is not needed`)
	assert.NotContains(t, quota.Error(), "right", "rights are not what is missing")
	assert.ErrorContains(t, c.Explain("list nodes", apierrors.NewUnauthorized("no")), "log in again or correct the kubeconfig")
	assert.ErrorContains(t, c.Explain("list nodes", apierrors.NewConflict(nodes, "a", nil)), `cannot list nodes in the cluster of context "home"`)
	assert.ErrorContains(t, c.Explain("list nodes", context.Canceled), "stopped before it could list nodes")
	assert.NoError(t, c.Explain("list nodes", nil))
}

func TestWhatIsMissingIsAnsweredWithWhatThereIs(t *testing.T) {
	now := metav1.Now()
	claims := func(names ...string) (list []*corev1.PersistentVolumeClaim) {
		for _, name := range names {
			list = append(list, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}})
		}
		return list
	}
	client := fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "going", DeletionTimestamp: &now, Finalizers: []string{"x"}}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "empty"}})
	for _, claim := range claims("a", "b", "c", "d", "data-1", "e", "f", "g", "h", "data-2") {
		_, err := client.CoreV1().PersistentVolumeClaims("shop").Create(t.Context(), claim, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	c := &Cluster{Context: "home", Client: client}
	for _, row := range []struct {
		kind            Kind
		namespace, name string
		says            string
	}{
		{Claim, "shop", "dta-2", `there is no claim "dta-2" in namespace "shop"; there are: a, b, c, d, data-1, data-2, e, f and 2 more (kubectl get ` +
			`pvc -n shop)`},
		{Pod, "shop", "web", `there is no pod "web" in namespace "shop", nor any other: give -n or --context if it is elsewhere`},
		{Pod, "going", "web", `there is no pod "web" in namespace "going", which is being deleted: kubectl lodestone why namespace/going says what it ` +
			`waits for`},
		{Pod, "nowhere", "web", `there is no namespace "nowhere"; there are: empty, going, shop`},
		{Node, "", "web", `there is no node "web", nor any other`},
		{Namespace, "", "shp", `there is no namespace "shp"; there are: empty, going, shop`},
	} {
		require.EqualError(t, c.Missing(t.Context(), row.kind, row.namespace, row.name), row.says)
	}
}
