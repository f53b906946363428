package reflect

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/remotecluster"
	"github.com/lodestone-storage/lodestone/virtualnode/reflect/needs"
)

func TestConfigMapFollowsThePodThatNamesIt(t *testing.T) {
	w := running(t, v1alpha1.Isolated)
	configMaps := home.Client().CoreV1().ConfigMaps(w.namespace)
	settings := w.configMap("settings", "one")
	w.configMap("other", "x")
	w.pod("a", mounts("settings", ""))
	w.pod("b", mounts("settings", ""))
	has := func(value string) func() bool {
		return func() bool {
			configMap := w.awayConfigMap("settings")
			return configMap != nil && configMap.Data["key"] == value
		}
	}
	w.eventually("the copy is there", has("one"))
	copied := w.awayConfigMap("settings")
	assert.Equal(t, map[string]string{keys.HomeID: w.homeID, keys.Reflected: string(settings.UID)}, copied.Labels)
	assert.Empty(t, copied.Annotations)
	assert.Equal(t, settings.BinaryData, copied.BinaryData)

	settings.Data["key"] = "two"
	must.Update(t, configMaps, settings)
	w.eventually("the copy follows", has("two"))

	copied = w.awayConfigMap("settings")
	copied.Data["key"] = "tampered"
	must.Update(t, west.Client().CoreV1().ConfigMaps(w.away), copied)
	w.eventually("a change there is put right", has("two"))

	must.Delete(t, west.Client().CoreV1().ConfigMaps(w.away), "settings")
	w.eventually("a copy deleted there is made again", has("two"))

	must.Delete(t, configMaps, "settings")
	w.eventually("the copy goes with the original", func() bool { return w.awayConfigMap("settings") == nil })
	w.configMap("settings", "three")
	w.eventually("another one of the name follows too", has("three"))

	w.endPod("a")
	w.consistently("the copy stays while a pod needs it", func() bool { return w.awayConfigMap("settings") != nil })
	w.endPod("b")
	w.eventually("the copy goes with the last pod", func() bool { return w.awayConfigMap("settings") == nil })
	assert.Nil(t, w.awayConfigMap("other"), "what no pod names stays at home")
}

func TestImmutableConfigMapIsReplaced(t *testing.T) {
	w := running(t, v1alpha1.Isolated)
	configMaps := home.Client().CoreV1().ConfigMaps(w.namespace)
	settings := w.configMap("settings", "one")
	settings.Immutable = ptr.To(true)
	must.Update(t, configMaps, settings)
	w.pod("a", mounts("settings", ""))
	w.eventually("the copy is there", func() bool {
		configMap := w.awayConfigMap("settings")
		return configMap != nil && ptr.Deref(configMap.Immutable, false)
	})
	before := w.awayConfigMap("settings")

	must.Delete(t, configMaps, "settings")
	w.configMap("settings", "two")
	w.eventually("the copy is that of the new one", func() bool {
		configMap := w.awayConfigMap("settings")
		return configMap != nil && configMap.Data["key"] == "two"
	})
	assert.NotEqual(t, before.UID, w.awayConfigMap("settings").UID)
}

func TestForeignConfigMapIsLeftAlone(t *testing.T) {
	w := newWorld(t, v1alpha1.Isolated)
	theirs := must.Create(t, west.Client().CoreV1().ConfigMaps(w.away), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"key": "theirs"},
	})
	w.open()
	w.start(nil)
	w.configMap("settings", "ours")
	w.pod("a", mounts("settings", ""))
	assert.Contains(t, w.told("a", "NameTaken"), "left alone")
	w.endPod("a")
	w.consistently("the ConfigMap there is untouched", func() bool {
		now := w.awayConfigMap("settings")
		return now != nil && now.UID == theirs.UID && now.ResourceVersion == theirs.ResourceVersion
	})
}

func TestNothingIsCopiedBeforeThePodIsAcceptedAndTheNamespaceReady(t *testing.T) {
	w := newWorld(t, v1alpha1.Isolated)
	w.start(nil)
	w.configMap("settings", "one")
	w.configMap("others", "one")
	w.pod("a", mounts("settings", ""))
	w.pod("b", func(pod *corev1.Pod) {
		mounts("others", "")(pod)
		pod.Finalizers = nil
	})
	w.consistently("nothing is there before the namespace can be used", func() bool { return w.awayConfigMap("settings") == nil })
	w.open()
	w.eventually("the copy is there", func() bool { return w.awayConfigMap("settings") != nil })
	w.consistently("what only a pod needs that was not accepted is not there", func() bool { return w.awayConfigMap("others") == nil })

	request := must.Get(t, w.requests, w.away)
	w.setReady(request, metav1.ConditionFalse)
	w.configMap("late", "one")
	w.pod("c", mounts("late", ""))
	w.consistently("nothing is written while the namespace is not ready", func() bool { return w.awayConfigMap("late") == nil })
	request = must.Get(t, w.requests, w.away)
	w.setReady(request, metav1.ConditionTrue)
	w.eventually("the copy is there once it is", func() bool { return w.awayConfigMap("late") != nil })
}

const ledger = "lodestone-reflected"

func (w *world) secret(name, value string, change func(*corev1.Secret)) *corev1.Secret {
	w.t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"note": "stays"}},
		Data: map[string][]byte{"key": []byte(value)}}
	if change != nil {
		change(secret)
	}
	return must.Create(w.t, home.Client().CoreV1().Secrets(w.namespace), secret)
}

// awaySecret returns a Secret of west, nil if there is none.
func (w *world) awaySecret(name string) *corev1.Secret {
	w.t.Helper()
	return must.Find(w.t, west.Client().CoreV1().Secrets(w.away), name)
}

func (w *world) hasSecret(name, value string) func() bool {
	return func() bool {
		secret := w.awaySecret(name)
		return secret != nil && string(secret.Data["key"]) == value
	}
}

func (w *world) noSecret(name string) func() bool {
	return func() bool { return w.awaySecret(name) == nil }
}

func TestSecretFollowsThePodThatNamesIt(t *testing.T) {
	w := running(t, v1alpha1.Isolated)
	secrets := home.Client().CoreV1().Secrets(w.namespace)
	password := w.secret("password", "one", nil)
	w.secret("other", "x", nil)
	w.pod("a", func(pod *corev1.Pod) {
		mounts("", "password")(pod)
		pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}}
	})
	w.eventually("the copy is there", w.hasSecret("password", "one"))
	copied := w.awaySecret("password")
	assert.Equal(t, map[string]string{keys.HomeID: w.homeID, keys.Reflected: string(password.UID)}, copied.Labels)
	assert.Empty(t, copied.Annotations)
	assert.Equal(t, map[string]string{"password": string(password.UID)}, w.awayConfigMap(ledger).Data)

	w.secret("registry", "late", func(secret *corev1.Secret) {
		secret.Type = corev1.SecretTypeDockerConfigJson
		secret.Data[corev1.DockerConfigJsonKey] = []byte("{}")
	})
	w.eventually("one made after the pod follows too", w.hasSecret("registry", "late"))
	assert.Equal(t, corev1.SecretTypeDockerConfigJson, w.awaySecret("registry").Type)

	password.Data["key"] = []byte("two")
	password = must.Update(t, secrets, password)
	w.eventually("the copy follows", w.hasSecret("password", "two"))
	assert.Equal(t, copied.UID, w.awaySecret("password").UID)

	must.Delete(t, west.Client().CoreV1().Secrets(w.away), "password")
	password.Data["key"] = []byte("three")
	must.Update(t, secrets, password)
	w.eventually("a copy deleted there is made again", w.hasSecret("password", "three"))

	must.Delete(t, secrets, "password")
	w.eventually("the copy goes with the original", w.noSecret("password"))
	w.secret("password", "four", func(secret *corev1.Secret) { secret.Immutable = ptr.To(true) })
	w.eventually("another one of the name follows too", w.hasSecret("password", "four"))
	must.Delete(t, secrets, "password")
	w.secret("password", "five", func(secret *corev1.Secret) { secret.Type = "example.test/other" })
	w.eventually("so does one that cannot take its place", w.hasSecret("password", "five"))

	w.endPod("a")
	w.eventually("the copies go with the pod", func() bool {
		return w.awaySecret("password") == nil && w.awaySecret("registry") == nil
	})
	w.eventually("the ledger goes with the last copy", func() bool { return w.awayConfigMap(ledger) == nil })
	assert.Nil(t, w.awaySecret("other"), "what no pod names stays at home")
}

func TestSecretsOfWestAreNeverRead(t *testing.T) {
	w := newWorld(t, v1alpha1.Isolated)
	client, err := kubernetes.NewForConfig(w.remoteConfig)
	require.NoError(t, err)
	_, err = client.CoreV1().Secrets(w.away).List(t.Context(), metav1.ListOptions{})
	require.True(t, apierrors.IsForbidden(err), "all these tests run without the right to read Secrets: %v", err)
	_, err = client.CoreV1().Secrets(w.away).Get(t.Context(), "password", metav1.GetOptions{})
	require.True(t, apierrors.IsForbidden(err), "nor one of them: %v", err)
}

func TestForeignSecretIsLeftAlone(t *testing.T) {
	w := newWorld(t, v1alpha1.Isolated)
	foreign := map[string]map[string]string{
		"plain":   nil,
		"another": {keys.HomeID: "another", keys.Reflected: "1234"},
		"strange": {keys.HomeID: w.homeID, keys.Reflected: "1234"},
	}
	theirs := map[string]*corev1.Secret{}
	for name, labels := range foreign {
		secret := must.Create(t, west.Client().CoreV1().Secrets(w.away), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Data: map[string][]byte{"key": []byte("theirs")},
		})
		theirs[name] = secret
	}
	w.open()
	w.start(nil)
	for name := range foreign {
		w.secret(name, "ours", nil)
		w.pod("needs-"+name, mounts("", name))
	}
	for name := range foreign {
		assert.Contains(t, w.told("needs-"+name, "NameTaken"), "left alone")
	}
	for name := range foreign {
		w.endPod("needs-" + name)
	}
	w.eventually("the ledger forgets them", func() bool { return w.awayConfigMap(ledger) == nil })
	for name, secret := range theirs {
		now := w.awaySecret(name)
		require.NotNil(t, now, name)
		assert.Equal(t, secret.ResourceVersion, now.ResourceVersion, name)
	}
}

func TestHomeTokensInSecretsDoNotTravel(t *testing.T) {
	w := running(t, v1alpha1.Isolated)
	w.secret("old-token", "x", func(secret *corev1.Secret) {
		secret.Type = corev1.SecretTypeServiceAccountToken
		secret.Annotations = map[string]string{corev1.ServiceAccountNameKey: "default"}
	})
	w.pod("a", mounts("", "old-token"))
	assert.Contains(t, w.told("a", "TokenStaysHome"), keys.Token)
	w.consistently("it stays at home", w.noSecret("old-token"))
}

func TestDeletedLedgerTakesNoSecretFromPods(t *testing.T) {
	w := running(t, v1alpha1.Isolated)
	w.secret("password", "one", nil)
	w.pod("a", mounts("", "password"))
	w.eventually("the copy is there", w.hasSecret("password", "one"))
	before := w.awayConfigMap(ledger)
	must.Delete(t, west.Client().CoreV1().ConfigMaps(w.away), ledger)
	w.eventually("the ledger is there again and owns the Secret", func() bool {
		now, secret := w.awayConfigMap(ledger), w.awaySecret("password")
		return now != nil && now.UID != before.UID && secret != nil && len(secret.OwnerReferences) == 1 &&
			secret.OwnerReferences[0].UID == now.UID
	})
	w.consistently("the Secret stays", func() bool { return w.awaySecret("password") != nil })

	w.endPod("a")
	w.eventually("nothing is left", func() bool { return w.awaySecret("password") == nil && w.awayConfigMap(ledger) == nil })
}

func TestForeignLedgerIsLeftAlone(t *testing.T) {
	w := newWorld(t, v1alpha1.Isolated)
	theirs := must.Create(t, west.Client().CoreV1().ConfigMaps(w.away), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: ledger}, Data: map[string]string{"password": "x"},
	})
	w.open()
	w.start(nil)
	w.secret("password", "one", nil)
	w.pod("a", mounts("", "password"))
	assert.Contains(t, w.told("a", "NameTaken"), ledger)
	w.consistently("no Secret is there that might be forgotten", w.noSecret("password"))
	assert.Equal(t, theirs.ResourceVersion, w.awayConfigMap(ledger).ResourceVersion)
}

func (w *world) service(name string, change func(*corev1.Service)) *corev1.Service {
	w.t.Helper()
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": name}, Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
	}
	if change != nil {
		change(service)
	}
	return must.Create(w.t, home.Client().CoreV1().Services(w.namespace), service)
}

func (w *world) awayService(name string) *corev1.Service {
	w.t.Helper()
	return must.Find(w.t, west.Client().CoreV1().Services(w.away), name)
}

// awayAddresses returns the addresses that our copies of the EndpointSlices of
// a Service give in west.
func (w *world) awayAddresses(service string) []string {
	w.t.Helper()
	list := must.List(w.t, west.Client().DiscoveryV1().EndpointSlices(w.away), metav1.ListOptions{
		LabelSelector: discoveryv1.LabelServiceName + "=" + service + "," + discoveryv1.LabelManagedBy + "=lodestone.dev",
	})
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
	return must.Create(w.t, home.Client().DiscoveryV1().EndpointSlices(w.namespace), &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: service + "-1", Labels: map[string]string{discoveryv1.LabelServiceName: service,
			discoveryv1.LabelManagedBy: "test"}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: endpoints,
		Ports: []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To(int32(8080)), Protocol: ptr.To(corev1.ProtocolTCP)}},
	})
}

func TestServicesAreThereWhileTheirNamespaceHasPodsThere(t *testing.T) {
	w := running(t, v1alpha1.Isolated)
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
	changed := must.Get(t, services, "web")
	changed.Spec.Ports[0].Port = 81
	must.Update(t, services, changed)
	w.eventually("the Service follows", func() bool { return w.awayService("web").Spec.Ports[0].Port == 81 })
	assert.Equal(t, web.Spec.ClusterIP, w.awayService("web").Spec.ClusterIP, "its address stays")

	must.Delete(t, services, "db")
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

// TestEndpointsThatTheRemoteClusterMakesAreLeftAlone looks at the slice of Kubernetes' own controller, which gives it the labels of its
// Service.
func TestEndpointsThatTheRemoteClusterMakesAreLeftAlone(t *testing.T) {
	w := running(t, v1alpha1.Routed)
	w.service("web", nil)
	w.pod("a", nil)
	own := func() *discoveryv1.EndpointSlice {
		found := must.List(t, west.Client().DiscoveryV1().EndpointSlices(w.away), metav1.ListOptions{
			LabelSelector: discoveryv1.LabelServiceName + "=web," + discoveryv1.LabelManagedBy + "=endpointslice-controller.k8s.io"})
		if len(found.Items) == 0 {
			return nil
		}
		return &found.Items[0]
	}
	var made *discoveryv1.EndpointSlice
	w.eventually("west has made endpoints", func() bool { made = own(); return made != nil })
	assert.NotEmpty(t, made.Labels[keys.Reflected], "it looks like a copy")
	w.consistently("they stay", func() bool { now := own(); return now != nil && now.UID == made.UID })
}

func TestExternalNamesNeedTheOwnersLeave(t *testing.T) {
	w := running(t, v1alpha1.Isolated)
	w.service("outside", func(service *corev1.Service) {
		service.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.test"}
	})
	w.pod("a", nil)
	assert.Contains(t, w.told("outside", "Refused"), "ExternalName")
	assert.Nil(t, w.awayService("outside"))
}

func TestEndpointsElsewhereAreThereIfPodNetworksAreRouted(t *testing.T) {
	w := newWorld(t, v1alpha1.Routed)
	w.open()
	stop := w.start(nil)
	w.service("web", nil)
	slice := w.endpoints("web",
		discoveryv1.Endpoint{Addresses: []string{"10.0.0.1"}, NodeName: ptr.To("home-1"), Zone: ptr.To("a"), Hostname: ptr.To("web-0"),
			Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}},
		discoveryv1.Endpoint{Addresses: []string{"10.9.0.1"}, NodeName: ptr.To(w.node)})
	w.pod("a", nil)
	w.eventually("the endpoints elsewhere are there", func() bool {
		return assert.ObjectsAreEqual([]string{"10.0.0.1"}, w.awayAddresses("web"))
	})

	slices := home.Client().DiscoveryV1().EndpointSlices(w.namespace)
	slice.Endpoints[0].Addresses = []string{"10.0.0.2"}
	slice = must.Update(t, slices, slice)
	w.eventually("they follow", func() bool { return assert.ObjectsAreEqual([]string{"10.0.0.2"}, w.awayAddresses("web")) })

	elsewhere := slice.Endpoints
	slice.Endpoints = elsewhere[1:]
	slice = must.Update(t, slices, slice)
	w.eventually("none is left when all are there", func() bool { return len(w.awayAddresses("web")) == 0 })
	slice.Endpoints = elsewhere
	must.Update(t, slices, slice)
	w.eventually("they come back", func() bool { return len(w.awayAddresses("web")) == 1 })

	stop()
	w.network = v1alpha1.Isolated
	w.start(nil)
	w.eventually("none is left when the networks are no longer routed", func() bool { return len(w.awayAddresses("web")) == 0 })
	assert.NotNil(t, w.awayService("web"))
}

func TestEndpointsStayHomeIfPodNetworksAreIsolated(t *testing.T) {
	w := running(t, v1alpha1.Isolated)
	w.service("web", nil)
	w.endpoints("web", discoveryv1.Endpoint{Addresses: []string{"10.0.0.1"}})
	w.pod("a", nil)
	w.eventually("the Service is there", func() bool { return w.awayService("web") != nil })
	w.consistently("no endpoint of home is", func() bool { return len(w.awayAddresses("web")) == 0 })
}

// review asks home whose token this is, for an audience.
func review(t *testing.T, token, audience string) authenticationv1.TokenReviewStatus {
	t.Helper()
	answer := must.Create(t, home.Client().AuthenticationV1().TokenReviews(), &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{audience}},
	})
	return answer.Status
}

func TestHomeTokenTravelsOnlyOnRequestBoundToPodAndAudience(t *testing.T) {
	w := running(t, v1alpha1.Isolated)
	silent := w.pod("silent", nil)
	asking := w.pod("asking", func(pod *corev1.Pod) { pod.Annotations = map[string]string{keys.Token: "vault"} })
	name := needs.Token(asking.UID)
	w.eventually("the token is there", func() bool { return w.awaySecret(name) != nil })
	secret := w.awaySecret(name)
	assert.Equal(t, w.namespace, string(secret.Data["namespace"]))
	assert.Contains(t, string(secret.Data["ca.crt"]), "BEGIN CERTIFICATE")
	status := review(t, string(secret.Data["token"]), "vault")
	require.True(t, status.Authenticated, status.Error)
	assert.Equal(t, "system:serviceaccount:"+w.namespace+":default", status.User.Username)
	assert.Equal(t, authenticationv1.ExtraValue{string(asking.UID)}, status.User.Extra["authentication.kubernetes.io/pod-uid"])
	assert.False(t, review(t, string(secret.Data["token"]), "https://kubernetes.default.svc").Authenticated,
		"it is of no use for the API itself")
	assert.Nil(t, w.awaySecret(needs.Token(silent.UID)))

	w.clock.Step(50 * time.Minute)
	w.eventually("the token is renewed in time", func() bool {
		now := w.awaySecret(name)
		return now != nil && string(now.Data["token"]) != string(secret.Data["token"])
	})

	must.Patch(t, home.Client().CoreV1().Pods(w.namespace), "asking", types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"`+keys.Token+`":"other"}}}`))
	w.eventually("the token is for another audience on request", func() bool {
		return review(t, string(w.awaySecret(name).Data["token"]), "other").Authenticated
	})
	must.Patch(t, home.Client().CoreV1().Pods(w.namespace), "asking", types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"`+keys.Token+`":"`+keys.HomeAudience+`"}}}`))
	w.eventually("the token is for home's API server", func() bool {
		answer := must.Create(t, home.Client().AuthenticationV1().TokenReviews(), &authenticationv1.TokenReview{
			Spec: authenticationv1.TokenReviewSpec{Token: string(w.awaySecret(name).Data["token"])}})
		return answer.Status.Authenticated
	})

	w.endPod("asking")
	w.eventually("the token goes with the pod", w.noSecret(name))
	w.eventually("nothing is left", func() bool { return w.awayConfigMap(ledger) == nil })
}

// TestEndpointsInAnotherRemoteClusterAreThereWhileHomeReachesIt has home's gateways say that west and east reach each other, and no longer,
// which is what the status of the RemoteCluster has.
func TestEndpointsInAnotherRemoteClusterAreThereWhileHomeReachesIt(t *testing.T) {
	w := newWorld(t, v1alpha1.Fabric)
	var err error
	w.remotes, err = clients.NewRemoteClusters(home.AdminConfig())
	require.NoError(t, err)
	remote := must.Create(t, w.remotes, &v1alpha1.RemoteCluster{ObjectMeta: metav1.ObjectMeta{Name: "west"},
		Spec: v1alpha1.RemoteClusterSpec{KubeconfigSecretRef: v1alpha1.SecretKeyRef{Namespace: "lodestone-system", Name: "west"},
			PodNetwork: v1alpha1.Fabric, PodCIDRs: []string{"10.244.0.0/16"}, PodTransit: v1alpha1.TransitEnabled}})
	t.Cleanup(func() {
		assert.NoError(t, w.remotes.Delete(context.Background(), "west", metav1.DeleteOptions{}))
	})
	// West's own range is that by which home reaches north: west reaches it by another one.
	w.homePods = remotecluster.Translations{{PodCIDR: netip.MustParsePrefix("10.244.0.0/16"),
		ReachedAs: netip.MustParsePrefix("100.76.0.0/16")}}
	for _, cluster := range []string{"east", "north"} {
		name := cluster + "-" + w.homeID
		must.Create(t, home.Client().CoreV1().Nodes(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name,
			Labels: map[string]string{keys.Cluster: cluster}}})
		t.Cleanup(func() {
			assert.NoError(t, home.Client().CoreV1().Nodes().Delete(context.Background(), name, metav1.DeleteOptions{}))
		})
	}
	reached := func(clusters ...string) {
		t.Helper()
		remote.Status.Transit = clusters
		remote = must.UpdateStatus(t, w.remotes, remote)
	}
	has := func(what string, addresses ...string) {
		t.Helper()
		w.eventually(what, func() bool {
			found := w.awayAddresses("db")
			slices.Sort(found)
			return slices.Equal(addresses, found)
		})
	}
	w.open()
	w.start(nil)
	w.service("db", func(service *corev1.Service) { service.Spec.ClusterIP = corev1.ClusterIPNone })
	w.endpoints("db", discoveryv1.Endpoint{Addresses: []string{"10.1.0.1"}, NodeName: ptr.To("home-1")},
		discoveryv1.Endpoint{Addresses: []string{"10.3.0.1"}, NodeName: ptr.To("east-" + w.homeID), Hostname: ptr.To("db-1")},
		discoveryv1.Endpoint{Addresses: []string{"10.244.0.1"}, NodeName: ptr.To("north-" + w.homeID)},
		discoveryv1.Endpoint{Addresses: []string{"10.9.0.1"}, NodeName: ptr.To(w.node)})
	w.pod("a", nil)
	has("only endpoints at home are there", "10.1.0.1")
	w.consistently("no other follows", func() bool { return len(w.awayAddresses("db")) == 1 })
	reached("east")
	has("the endpoints in east are there", "10.1.0.1", "10.3.0.1")
	reached("east", "north")
	has("those in north have the addresses by which west reaches them", "10.1.0.1", "10.3.0.1", "100.76.0.1")
	reached("north")
	has("those in east go once it is not reached any more", "10.1.0.1", "100.76.0.1")
	reached()
	has("only endpoints at home are left", "10.1.0.1")
}
