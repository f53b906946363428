package copies

import (
	"encoding/json"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/remotecluster"
)

var place = Destination{HomeID: "h1", Namespace: "shop-h1"}

func marks(uid string) map[string]string {
	return map[string]string{keys.HomeID: "h1", keys.Reflected: uid}
}

func TestOnlyCopiesOfThisHomeAreOurs(t *testing.T) {
	for name, test := range map[string]struct {
		labels map[string]string
		want   bool
	}{
		"no label":  {},
		"our copy":  {labels: marks("u1"), want: true},
		"our slice": {labels: map[string]string{keys.HomeID: "h1", keys.Reflected: "u1", discoveryv1.LabelManagedBy: Manager}, want: true},
		"the slice that the cluster made for our Service": {labels: map[string]string{keys.HomeID: "h1", keys.Reflected: "u1",
			discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io"}},
		"only our home":    {labels: map[string]string{keys.HomeID: "h1"}},
		"only a copy":      {labels: map[string]string{keys.Reflected: "u1"}},
		"another home's":   {labels: map[string]string{keys.HomeID: "h2", keys.Reflected: "u1"}},
		"a copy of nobody": {labels: map[string]string{keys.HomeID: "h1", keys.Reflected: ""}},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, Ours(&metav1.ObjectMeta{Labels: test.labels}, "h1"))
		})
	}
}

func TestCopiesCarryContentAndMarksOnly(t *testing.T) {
	meta := metav1.ObjectMeta{
		Namespace: "shop", Name: "settings", UID: "u1", ResourceVersion: "5", Finalizers: []string{"home.test/f"},
		Labels: map[string]string{"app": "shop"}, Annotations: map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "{}"},
		OwnerReferences: []metav1.OwnerReference{{Name: "operator"}},
	}
	want := metav1.ObjectMeta{Namespace: "shop-h1", Name: "settings", Labels: marks("u1")}
	assert.Equal(t, &corev1.ConfigMap{ObjectMeta: want, Data: map[string]string{"a": "b"}, BinaryData: map[string][]byte{"c": {1}},
		Immutable: ptr.To(true)},
		place.ConfigMap(&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"a": "b"}, BinaryData: map[string][]byte{"c": {1}},
			Immutable: ptr.To(true)}))
	assert.Equal(t, &corev1.Secret{ObjectMeta: want, Data: map[string][]byte{"a": {1}}, Type: corev1.SecretTypeTLS},
		place.Secret(&corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{"a": {1}}, Type: corev1.SecretTypeTLS}))
}

func TestTokenSecretLooksLikeATokenVolume(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "p1"}}
	assert.Equal(t, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop-h1", Name: "lodestone-token-p1", Labels: marks("p1")},
		Type:       corev1.SecretTypeOpaque,
		Data:       map[string][]byte{"token": []byte("t"), "ca.crt": []byte("ca"), "namespace": []byte("shop")},
	}, place.Token("lodestone-token-p1", pod, "t", "ca"))
}

func TestConfigMapCopyIsBroughtInStep(t *testing.T) {
	type change = func(*corev1.ConfigMap)
	for name, test := range map[string]struct {
		have, want change
		change     Change
	}{
		"in step":             {have: func(*corev1.ConfigMap) {}},
		"another's label":     {have: func(c *corev1.ConfigMap) { c.Labels["team"] = "x" }},
		"nil and empty":       {have: func(c *corev1.ConfigMap) { c.BinaryData = map[string][]byte{} }},
		"changed content":     {have: func(c *corev1.ConfigMap) { c.Data["a"] = "x" }, change: Update},
		"changed at home":     {want: func(c *corev1.ConfigMap) { c.Data["b"] = "x" }, change: Update},
		"another home object": {want: func(c *corev1.ConfigMap) { c.Labels[keys.Reflected] = "u2" }, change: Update},
		"made immutable":      {want: func(c *corev1.ConfigMap) { c.Immutable = ptr.To(true) }, change: Update},
		"no longer immutable": {have: func(c *corev1.ConfigMap) { c.Immutable = ptr.To(true) }, change: Replace},
		"immutable, and other content": {
			have: func(c *corev1.ConfigMap) { c.Immutable = ptr.To(true) },
			want: func(c *corev1.ConfigMap) { c.Immutable = ptr.To(true); c.Data["a"] = "x" }, change: Replace,
		},
		"immutable, and another home object of the same content": {
			have: func(c *corev1.ConfigMap) { c.Immutable = ptr.To(true) },
			want: func(c *corev1.ConfigMap) { c.Immutable = ptr.To(true); c.Labels[keys.Reflected] = "u2" }, change: Update,
		},
		"a forged mark": {have: func(c *corev1.ConfigMap) { c.Labels[keys.PodUID] = "p1" }, change: Update},
	} {
		t.Run(name, func(t *testing.T) {
			have := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings", UID: "r1", ResourceVersion: "7", Labels: marks("u1")},
				Data: map[string]string{"a": "b"}}
			want := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings", Labels: marks("u1")}, Data: map[string]string{"a": "b"}}
			if test.have != nil {
				test.have(have)
			}
			if test.want != nil {
				test.want(want)
			}
			before := have.DeepCopy()
			next, change := MergeConfigMap(have, want)
			assert.Equal(t, test.change, change)
			assert.Equal(t, before, have, "what is cached is not changed")
			again, change := MergeConfigMap(next, want)
			assert.Equal(t, None, change, "what was written is in step")
			assert.Equal(t, next, again)
			assert.Equal(t, "7", next.ResourceVersion)
			assert.Equal(t, want.Labels[keys.Reflected], next.Labels[keys.Reflected])
			assert.NotContains(t, next.Labels, keys.PodUID)
		})
	}
}

func TestSecretPatchBeginsWithTheProof(t *testing.T) {
	secret := place.Secret(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "password", UID: "u1"},
		Data: map[string][]byte{"a": []byte("b")}})
	secret.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "ledger", UID: "l1"}}
	patch, err := SecretPatch(secret)
	require.NoError(t, err)
	proof, err := ProofPatch("h1", "u1")
	require.NoError(t, err)
	var all, first []map[string]any
	require.NoError(t, json.Unmarshal(patch, &all))
	require.NoError(t, json.Unmarshal(proof, &first))
	assert.Equal(t, []map[string]any{
		{"op": "test", "path": "/metadata/labels/lodestone.dev~1home", "value": "h1"},
		{"op": "test", "path": "/metadata/labels/lodestone.dev~1reflected", "value": "u1"},
	}, first)
	assert.Equal(t, first, all[:2])
	assert.Equal(t, []map[string]any{
		{"op": "add", "path": "/metadata/ownerReferences",
			"value": []any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "ledger", "uid": "l1"}}},
		{"op": "add", "path": "/data", "value": map[string]any{"a": "Yg=="}},
		{"op": "add", "path": "/immutable", "value": false},
	}, all[2:])
}

func TestServiceLosesWhatBelongsToHome(t *testing.T) {
	ports := []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, AppProtocol: ptr.To("http"), Port: 80,
		TargetPort: intstr.FromString("web")}}
	home := func(change func(*corev1.ServiceSpec)) *corev1.Service {
		service := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u1", Labels: map[string]string{"a": "b"},
				Annotations: map[string]string{"cloud.test/balancer": "x"}},
			Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.0.0.7", ClusterIPs: []string{"10.0.0.7"},
				IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicySingleStack),
				Selector: map[string]string{"app": "web"}, Ports: ports, SessionAffinity: corev1.ServiceAffinityNone,
				InternalTrafficPolicy: ptr.To(corev1.ServiceInternalTrafficPolicyCluster),
			},
		}
		change(&service.Spec)
		return service
	}
	want := func(change func(*corev1.ServiceSpec)) *corev1.Service {
		service := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop-h1", Name: "web", Labels: marks("u1")},
			Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, Selector: map[string]string{"app": "web"}, Ports: ports,
				SessionAffinity: corev1.ServiceAffinityNone},
		}
		change(&service.Spec)
		return service
	}
	for name, test := range map[string]struct{ home, want func(*corev1.ServiceSpec) }{
		"an address": {home: func(*corev1.ServiceSpec) {}, want: func(*corev1.ServiceSpec) {}},
		"headless": {
			home: func(spec *corev1.ServiceSpec) { spec.ClusterIP, spec.PublishNotReadyAddresses = "None", true },
			want: func(spec *corev1.ServiceSpec) { spec.ClusterIP, spec.PublishNotReadyAddresses = "None", true },
		},
		"node ports": {
			home: func(spec *corev1.ServiceSpec) {
				spec.Type = corev1.ServiceTypeNodePort
				spec.Ports = []corev1.ServicePort{ports[0]}
				spec.Ports[0].NodePort = 30080
			},
			want: func(*corev1.ServiceSpec) {},
		},
		"a load balancer": {
			home: func(spec *corev1.ServiceSpec) {
				spec.Type, spec.LoadBalancerClass, spec.AllocateLoadBalancerNodePorts = corev1.ServiceTypeLoadBalancer, ptr.To("x"), ptr.To(true)
				spec.LoadBalancerSourceRanges, spec.ExternalIPs, spec.HealthCheckNodePort = []string{"10.0.0.0/8"}, []string{"1.2.3.4"}, 31000
				spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
			},
			want: func(*corev1.ServiceSpec) {},
		},
		"sticky clients": {
			home: func(spec *corev1.ServiceSpec) {
				spec.SessionAffinity, spec.SessionAffinityConfig = corev1.ServiceAffinityClientIP,
					&corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To(int32(9))}}
			},
			want: func(spec *corev1.ServiceSpec) {
				spec.SessionAffinity, spec.SessionAffinityConfig = corev1.ServiceAffinityClientIP,
					&corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To(int32(9))}}
			},
		},
		"a name elsewhere": {
			home: func(spec *corev1.ServiceSpec) {
				*spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "db.test"}
			},
			want: func(spec *corev1.ServiceSpec) {
				*spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "db.test"}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, want(test.want), place.Service(home(test.home)))
		})
	}
}

func TestServicesThatStayHome(t *testing.T) {
	service := func(namespace, name string, labels map[string]string) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}}
	}
	assert.False(t, TravelsService(service("default", "kubernetes", nil)), "each cluster has its own")
	assert.False(t, TravelsService(service("shop", "web", marks("u1"))), "a copy of another home")
	assert.False(t, TravelsService(service("shop", "mcs-web", map[string]string{keys.ServiceImport: "web"})), "it stands for an import")
	assert.True(t, TravelsService(service("shop", "kubernetes", nil)))
	assert.True(t, TravelsService(service("default", "web", nil)))
}

func TestServiceCopyIsBroughtInStep(t *testing.T) {
	type change = func(*corev1.ServiceSpec)
	for name, test := range map[string]struct {
		have, want change
		change     Change
	}{
		"in step":            {},
		"a changed port":     {want: func(spec *corev1.ServiceSpec) { spec.Ports[0].Port = 81 }, change: Update},
		"a changed selector": {want: func(spec *corev1.ServiceSpec) { spec.Selector = map[string]string{"app": "x"} }, change: Update},
		"becomes headless":   {want: func(spec *corev1.ServiceSpec) { spec.ClusterIP = "None" }, change: Replace},
		"becomes a name": {want: func(spec *corev1.ServiceSpec) {
			*spec = corev1.ServiceSpec{Type: "ExternalName", ExternalName: "x.test"}
		}, change: Replace},
		"opened to the world":  {have: func(spec *corev1.ServiceSpec) { spec.Type = "NodePort" }, change: Replace},
		"external IPs":         {have: func(spec *corev1.ServiceSpec) { spec.ExternalIPs = []string{"1.2.3.4"} }, change: Update},
		"a policy added there": {have: func(spec *corev1.ServiceSpec) { spec.TrafficDistribution = ptr.To("PreferClose") }},
	} {
		t.Run(name, func(t *testing.T) {
			want := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: marks("u1")}, Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeClusterIP, Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80}},
				SessionAffinity: corev1.ServiceAffinityNone,
			}}
			have := want.DeepCopy()
			have.Spec.ClusterIP, have.Spec.ClusterIPs, have.Spec.IPFamilies = "10.1.0.3", []string{"10.1.0.3"},
				[]corev1.IPFamily{corev1.IPv4Protocol}
			have.Spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyCluster)
			if test.have != nil {
				test.have(&have.Spec)
			}
			if test.want != nil {
				test.want(&want.Spec)
			}
			next, change := MergeService(have, want)
			assert.Equal(t, test.change, change)
			if change == Update {
				assert.Equal(t, "10.1.0.3", next.Spec.ClusterIP, "its address stays")
				_, change = MergeService(next, want)
				assert.Equal(t, None, change, "what was written is in step")
			}
		})
	}
}

func TestSliceHasTheEndpointsElsewhere(t *testing.T) {
	ready := discoveryv1.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(true), Terminating: ptr.To(false)}
	full := discoveryv1.Endpoint{
		Addresses: []string{"10.0.0.1"}, Conditions: ready, Hostname: ptr.To("db-0"), NodeName: ptr.To("home-1"), Zone: ptr.To("a"),
		TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: "db-0"},
		Hints:     &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "a"}}},
	}
	bare := discoveryv1.Endpoint{Addresses: []string{"10.0.0.1"}, Conditions: ready, Hostname: ptr.To("db-0")}
	there := discoveryv1.Endpoint{Addresses: []string{"10.9.0.1"}, NodeName: ptr.To("west")}
	manual := discoveryv1.Endpoint{Addresses: []string{"192.0.2.1"}}
	for name, test := range map[string]struct {
		labels    map[string]string
		endpoints []discoveryv1.Endpoint
		want      []discoveryv1.Endpoint // nil: no copy
	}{
		"endpoints of home":        {endpoints: []discoveryv1.Endpoint{full, there}, want: []discoveryv1.Endpoint{bare}},
		"only endpoints there":     {endpoints: []discoveryv1.Endpoint{there}},
		"no endpoint":              {},
		"endpoints without a node": {endpoints: []discoveryv1.Endpoint{manual}, want: []discoveryv1.Endpoint{manual}},
		"of another home":          {labels: marks("u9"), endpoints: []discoveryv1.Endpoint{full}},
		"of no Service": {labels: map[string]string{discoveryv1.LabelServiceName: ""},
			endpoints: []discoveryv1.Endpoint{full}},
		"managed by whatever makes it": {labels: map[string]string{discoveryv1.LabelManagedBy: "x"}, endpoints: []discoveryv1.Endpoint{full},
			want: []discoveryv1.Endpoint{bare}},
		"with labels that stay where made": {labels: map[string]string{"team": "x"}, endpoints: []discoveryv1.Endpoint{full},
			want: []discoveryv1.Endpoint{bare}},
	} {
		t.Run(name, func(t *testing.T) {
			ports := []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To(int32(8080))}}
			home := &discoveryv1.EndpointSlice{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db-x7k2p", UID: "u1",
					Labels: map[string]string{discoveryv1.LabelServiceName: "db", corev1.IsHeadlessService: ""}},
				AddressType: discoveryv1.AddressTypeIPv4, Endpoints: test.endpoints, Ports: ports,
			}
			for key, value := range test.labels {
				home.Labels[key] = value
			}
			got := place.Slice(home, func(node string) bool { return node == "west" })
			if test.want == nil {
				assert.Nil(t, got)
				return
			}
			assert.Equal(t, &discoveryv1.EndpointSlice{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop-h1", Name: "lodestone-u1", Labels: map[string]string{
					keys.HomeID: "h1", keys.Reflected: "u1", discoveryv1.LabelServiceName: "db", discoveryv1.LabelManagedBy: "lodestone.dev",
					corev1.IsHeadlessService: "",
				}},
				AddressType: discoveryv1.AddressTypeIPv4, Endpoints: test.want, Ports: ports,
			}, got)
		})
	}
}

func TestEndpointsAtHomeHaveTheAddressByWhichTheyAreReached(t *testing.T) {
	place := Destination{HomeID: "h1", Namespace: "shop-h1", HomePods: remotecluster.Translations{{
		PodCIDR: netip.MustParsePrefix("10.244.0.0/16"), ReachedAs: netip.MustParsePrefix("100.64.0.0/16")}}}
	home := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{UID: "u1", Labels: map[string]string{discoveryv1.LabelServiceName: "db"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.244.3.4"}}, {Addresses: []string{"192.0.2.1"}},
			{Addresses: []string{"100.64.3.4"}}},
	}
	got := place.Slice(home, func(string) bool { return false })
	assert.Equal(t, []discoveryv1.Endpoint{{Addresses: []string{"100.64.3.4"}}, {Addresses: []string{"192.0.2.1"}}}, got.Endpoints,
		"an address that means another pod there is left out")
	assert.Equal(t, []string{"10.244.3.4"}, home.Endpoints[0].Addresses, "what was read is not changed")
}

func TestSliceCopyIsBroughtInStep(t *testing.T) {
	want := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "lodestone-u1", Labels: marks("u1")},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}}},
	}
	_, change := MergeSlice(want.DeepCopy(), want)
	assert.Equal(t, None, change)
	have := want.DeepCopy()
	have.Endpoints[0].Addresses = []string{"10.6.6.6"}
	have.Labels[corev1.IsHeadlessService] = ""
	next, change := MergeSlice(have, want)
	assert.Equal(t, Update, change)
	assert.Equal(t, want.Endpoints, next.Endpoints)
	assert.NotContains(t, next.Labels, corev1.IsHeadlessService)
	have.AddressType = discoveryv1.AddressTypeIPv6
	_, change = MergeSlice(have, want)
	assert.Equal(t, Replace, change)
}
