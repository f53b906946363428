package reflect

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

func (w *world) service(name string, change func(*corev1.Service)) *corev1.Service {
	w.t.Helper()
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": name}, Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
	}
	if change != nil {
		change(service)
	}
	service, err := home.Client().CoreV1().Services(w.namespace).Create(w.t.Context(), service, metav1.CreateOptions{})
	require.NoError(w.t, err)
	return service
}

func (w *world) awayService(name string) *corev1.Service {
	w.t.Helper()
	service, err := west.Client().CoreV1().Services(w.away).Get(w.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(w.t, err)
	return service
}

// awayAddresses returns the addresses that our copies of the EndpointSlices of
// a Service give in west.
func (w *world) awayAddresses(service string) []string {
	w.t.Helper()
	list, err := west.Client().DiscoveryV1().EndpointSlices(w.away).List(w.t.Context(), metav1.ListOptions{
		LabelSelector: discoveryv1.LabelServiceName + "=" + service + "," + discoveryv1.LabelManagedBy + "=lodestone.dev",
	})
	require.NoError(w.t, err)
	var result []string
	for _, slice := range list.Items {
		for _, endpoint := range slice.Endpoints {
			result = append(result, endpoint.Addresses...)
		}
	}
	return result
}

// endpoints makes an EndpointSlice of a Service at home.
func (w *world) endpoints(service string, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	w.t.Helper()
	slice, err := home.Client().DiscoveryV1().EndpointSlices(w.namespace).Create(w.t.Context(), &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: service + "-1", Labels: map[string]string{discoveryv1.LabelServiceName: service, discoveryv1.LabelManagedBy: "test"}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: endpoints,
		Ports: []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To(int32(8080)), Protocol: ptr.To(corev1.ProtocolTCP)}},
	}, metav1.CreateOptions{})
	require.NoError(w.t, err)
	return slice
}

func TestServicesAreThereWhileTheirNamespaceHasPodsThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, v1alpha1.Isolated)
	w.open()
	w.start(nil)
	w.service("web", func(service *corev1.Service) { service.Spec.Type = corev1.ServiceTypeNodePort })
	w.service("db", func(service *corev1.Service) { service.Spec.ClusterIP = corev1.ClusterIPNone })
	w.consistently("no Service is there before a pod is", func() bool { return w.awayService("web") == nil })
	w.pod("a", nil)
	w.eventually("the Services are there", func() bool { return w.awayService("web") != nil && w.awayService("db") != nil })
	web := w.awayService("web")
	assert.Equal(t, corev1.ServiceTypeClusterIP, web.Spec.Type)
	assert.Zero(t, web.Spec.Ports[0].NodePort)
	assert.Equal(t, map[string]string{"app": "web"}, web.Spec.Selector)
	assert.NotEmpty(t, web.Spec.ClusterIP)
	assert.Equal(t, corev1.ClusterIPNone, w.awayService("db").Spec.ClusterIP)

	w.consistently("a copy in step is not written again", func() bool { return w.awayService("web").ResourceVersion == web.ResourceVersion })

	services := home.Client().CoreV1().Services(w.namespace)
	changed, err := services.Get(t.Context(), "web", metav1.GetOptions{})
	require.NoError(t, err)
	changed.Spec.Ports[0].Port = 81
	_, err = services.Update(t.Context(), changed, metav1.UpdateOptions{})
	require.NoError(t, err)
	w.eventually("the Service follows", func() bool { return w.awayService("web").Spec.Ports[0].Port == 81 })
	assert.Equal(t, web.Spec.ClusterIP, w.awayService("web").Spec.ClusterIP, "its address stays")

	require.NoError(t, services.Delete(t.Context(), "db", metav1.DeleteOptions{}))
	w.eventually("the Service goes with the original", func() bool { return w.awayService("db") == nil })

	w.endPod("a")
	w.pod("b", nil)
	w.clock.Step(time.Minute)
	w.service("late", nil)
	w.eventually("another pod keeps the Services", func() bool { return w.awayService("late") != nil && w.awayService("web") != nil })
	w.endPod("b")
	w.consistently("the Services stay for a moment", func() bool { return w.awayService("web") != nil })
	w.clock.Step(time.Minute)
	w.eventually("the Services go", func() bool { return w.awayService("web") == nil && w.awayService("late") == nil })
}

func TestExternalNamesNeedTheOwnersLeave(t *testing.T) {
	t.Parallel()
	w := newWorld(t, v1alpha1.Isolated)
	w.open()
	w.start(nil)
	w.service("outside", func(service *corev1.Service) {
		service.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.test"}
	})
	w.pod("a", nil)
	assert.Contains(t, w.told("outside", "Refused"), "ExternalName")
	assert.Nil(t, w.awayService("outside"))
}

func TestEndpointsElsewhereAreThereIfPodNetworksAreRouted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, v1alpha1.Routed)
	w.open()
	stop := w.start(nil)
	w.service("web", nil)
	slice := w.endpoints("web",
		discoveryv1.Endpoint{Addresses: []string{"10.0.0.1"}, NodeName: ptr.To("home-1"), Zone: ptr.To("a"), Hostname: ptr.To("web-0"), Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}},
		discoveryv1.Endpoint{Addresses: []string{"10.9.0.1"}, NodeName: ptr.To(w.node)})
	w.pod("a", nil)
	w.eventually("the endpoints elsewhere are there", func() bool { return assert.ObjectsAreEqual([]string{"10.0.0.1"}, w.awayAddresses("web")) })

	slices := home.Client().DiscoveryV1().EndpointSlices(w.namespace)
	slice.Endpoints[0].Addresses = []string{"10.0.0.2"}
	slice, err := slices.Update(t.Context(), slice, metav1.UpdateOptions{})
	require.NoError(t, err)
	w.eventually("they follow", func() bool { return assert.ObjectsAreEqual([]string{"10.0.0.2"}, w.awayAddresses("web")) })

	elsewhere := slice.Endpoints
	slice.Endpoints = elsewhere[1:]
	slice, err = slices.Update(t.Context(), slice, metav1.UpdateOptions{})
	require.NoError(t, err)
	w.eventually("none is left when all are there", func() bool { return len(w.awayAddresses("web")) == 0 })
	slice.Endpoints = elsewhere
	_, err = slices.Update(t.Context(), slice, metav1.UpdateOptions{})
	require.NoError(t, err)
	w.eventually("they come back", func() bool { return len(w.awayAddresses("web")) == 1 })

	stop()
	w.network = v1alpha1.Isolated
	w.start(nil)
	w.eventually("none is left when the networks are no longer routed", func() bool { return len(w.awayAddresses("web")) == 0 })
	assert.NotNil(t, w.awayService("web"))
}

func TestEndpointsStayHomeIfPodNetworksAreIsolated(t *testing.T) {
	t.Parallel()
	w := newWorld(t, v1alpha1.Isolated)
	w.open()
	w.start(nil)
	w.service("web", nil)
	w.endpoints("web", discoveryv1.Endpoint{Addresses: []string{"10.0.0.1"}})
	w.pod("a", nil)
	w.eventually("the Service is there", func() bool { return w.awayService("web") != nil })
	w.consistently("no endpoint of home is", func() bool { return len(w.awayAddresses("web")) == 0 })
}
