package rules

import (
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	networkv1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/network/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/remotecluster"
)

var epoch = time.Unix(1_800_000_000, 0)

var (
	home = &Cluster{ID: "h1"}
	west = &Cluster{ID: "west", Network: v1alpha1.Fabric, Ranges: ranges("10.244.0.0/16"),
		Translations:     translation("10.244.0.0/16", "100.65.0.0/16"),
		HomeTranslations: translation("10.244.0.0/16", "100.64.0.0/16")}
	east = &Cluster{ID: "east", Network: v1alpha1.Fabric, Ranges: ranges("10.9.0.0/16")}
	// twin has pods where home calls those of west so.
	twin = &Cluster{ID: "twin", Network: v1alpha1.Fabric, Ranges: ranges("10.7.0.0/16"),
		HomeTranslations: translation("10.8.0.0/16", "100.65.0.0/16")}
	north = &Cluster{ID: "north", Network: v1alpha1.Routed, Ranges: ranges("10.10.0.0/16", "fd00:10::/64")}
	south = &Cluster{ID: "south", Network: v1alpha1.Routed, Ranges: ranges("10.11.0.0/16")}
)

func ranges(texts ...string) remotecluster.PodRanges {
	parsed, err := remotecluster.ParsePodRanges(texts)
	if err != nil {
		panic(err)
	}
	return parsed
}

func translation(pods, as string) remotecluster.Translations {
	parsed, err := remotecluster.ParseTranslations([]networkv1alpha1.PodTranslation{{PodCIDR: pods, ReachedAs: as}})
	if err != nil {
		panic(err)
	}
	return parsed
}

// export is one of a Service web with port 80, made so many seconds after the others.
func export(from *Cluster, age int, changes ...func(*Export)) Export {
	made := Export{From: from,
		Object: &mcs.ServiceExport{ObjectMeta: metav1.ObjectMeta{Name: "web",
			CreationTimestamp: metav1.NewTime(epoch.Add(time.Duration(age) * time.Second))}},
		Service: &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: corev1.ServiceSpec{
			ClusterIP: "10.96.1.1", Ports: []corev1.ServicePort{{Name: "http", Port: 80}}}}}
	for _, change := range changes {
		change(&made)
	}
	return made
}

func spec(change func(*corev1.ServiceSpec)) func(*Export) {
	return func(e *Export) { change(&e.Service.Spec) }
}

func ports(given ...corev1.ServicePort) func(*Export) {
	return spec(func(s *corev1.ServiceSpec) { s.Ports = given })
}

func port(name string, number int32) corev1.ServicePort {
	return corev1.ServicePort{Name: name, Port: number}
}

// names are the ports of an import, as name:number/protocol.
func names(merged Merged) (all []string) {
	for _, p := range merged.Spec.Ports {
		all = append(all, p.Name+":"+string(p.Protocol)+"/"+string('0'+p.Port%10))
	}
	return all
}

func TestTheOldestExportCountsAndPortsAreAUnion(t *testing.T) {
	headless := spec(func(s *corev1.ServiceSpec) { s.ClusterIP = corev1.ClusterIPNone })
	sticky := func(seconds int32) func(*Export) {
		return spec(func(s *corev1.ServiceSpec) {
			s.SessionAffinity = corev1.ServiceAffinityClientIP
			s.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
		})
	}
	local := spec(func(s *corev1.ServiceSpec) {
		s.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyLocal)
	})
	whole := spec(func(s *corev1.ServiceSpec) {
		s.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyCluster)
	})
	near := spec(func(s *corev1.ServiceSpec) {
		s.TrafficDistribution = ptr.To(corev1.ServiceTrafficDistributionPreferClose)
	})
	labels := func(value string) func(*Export) {
		return func(e *Export) { e.Object.Spec.ExportedLabels = map[string]string{"team": value} }
	}
	notes := func(e *Export) { e.Object.Spec.ExportedAnnotations = map[string]string{"note": "x"} }
	for _, row := range []struct {
		name    string
		exports []Export
		// conflicts are the reasons that each export has, by cluster; one without has none.
		conflicts map[string]string
		check     func(t *testing.T, m Merged)
	}{
		{"one alone", []Export{export(home, 0)}, nil, func(t *testing.T, m Merged) {
			assert.Equal(t, mcs.ServiceImportSpec{Type: mcs.ClusterSetIP, SessionAffinity: corev1.ServiceAffinityNone,
				Ports:                 []mcs.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}},
				InternalTrafficPolicy: ptr.To(corev1.ServiceInternalTrafficPolicyCluster)}, m.Spec)
		}},
		{"none", nil, nil, func(t *testing.T, m Merged) { assert.Empty(t, m.Exports) }},
		{"two that are the same, in another order", []Export{export(home, 0, ports(port("a", 1), port("b", 2))),
			export(west, 1, ports(port("b", 2), port("a", 1)))}, nil,
			func(t *testing.T, m Merged) { assert.Equal(t, []string{"h1", "west"}, m.Clusters()) }},
		{"a default is the same as what is said", []Export{export(home, 0), export(west, 1, whole)}, nil, nil},
		{"the older is that of west", []Export{export(home, 5), export(west, 0, headless)},
			map[string]string{"h1": "TypeConflict,SessionAffinityConflict", "west": "TypeConflict,SessionAffinityConflict"},
			func(t *testing.T, m Merged) { assert.Equal(t, mcs.Headless, m.Spec.Type) }},
		{"of the same second that of home is the older", []Export{export(east, 0, headless), export(home, 0), export(west, 0, headless)},
			map[string]string{"h1": "TypeConflict,SessionAffinityConflict", "east": "TypeConflict,SessionAffinityConflict",
				"west": "TypeConflict,SessionAffinityConflict"},
			func(t *testing.T, m Merged) { assert.Equal(t, mcs.ClusterSetIP, m.Spec.Type) }},
		{"ports are a union", []Export{export(home, 0, ports(port("a", 1), port("b", 2))), export(west, 1, ports(port("b", 3), port("c", 4))),
			export(east, 2, ports(port("d", 4), port("e", 5)))},
			map[string]string{"h1": "PortConflict", "west": "PortConflict", "east": "PortConflict"},
			// b is that of home; d would be the port of c.
			func(t *testing.T, m Merged) {
				assert.Equal(t, []string{"a:TCP/1", "b:TCP/2", "c:TCP/4", "e:TCP/5"}, names(m))
			}},
		{"one number and two protocols", []Export{export(home, 0, ports(port("dns", 3))),
			export(west, 1, ports(corev1.ServicePort{Name: "dns-udp", Port: 3, Protocol: corev1.ProtocolUDP}))},
			map[string]string{"h1": "PortConflict", "west": "PortConflict"},
			func(t *testing.T, m Merged) { assert.Equal(t, []string{"dns:TCP/3", "dns-udp:UDP/3"}, names(m)) }},
		{"a port without a name stands alone", []Export{export(home, 0, ports(port("", 1))), export(west, 1, ports(port("b", 2)))},
			map[string]string{"h1": "PortConflict", "west": "PortConflict"},
			func(t *testing.T, m Merged) { assert.Equal(t, []string{":TCP/1"}, names(m)) }},
		{"a port without a name comes beside none", []Export{export(home, 0, ports(port("b", 2))), export(west, 1, ports(port("", 1)))},
			map[string]string{"h1": "PortConflict", "west": "PortConflict"},
			func(t *testing.T, m Merged) { assert.Equal(t, []string{"b:TCP/2"}, names(m)) }},
		{"session affinity", []Export{export(home, 0, sticky(60)), export(west, 1, sticky(90)), export(east, 2)},
			map[string]string{"h1": "SessionAffinityConfigConflict", "west": "SessionAffinityConfigConflict", "east": "SessionAffinityConflict"},
			func(t *testing.T, m Merged) {
				assert.Equal(t, corev1.ServiceAffinityClientIP, m.Spec.SessionAffinity)
				assert.Equal(t, int32(60), *m.Spec.SessionAffinityConfig.ClientIP.TimeoutSeconds)
			}},
		{"traffic", []Export{export(home, 0, local), export(west, 1, near)},
			map[string]string{"h1": "InternalTrafficPolicyConflict,TrafficDistributionConflict",
				"west": "InternalTrafficPolicyConflict,TrafficDistributionConflict"},
			func(t *testing.T, m Merged) {
				assert.Equal(t, corev1.ServiceInternalTrafficPolicyLocal, *m.Spec.InternalTrafficPolicy)
				assert.Nil(t, m.Spec.TrafficDistribution)
			}},
		{"labels and annotations", []Export{export(home, 0, labels("a")), export(west, 1, labels("b"), notes)},
			map[string]string{"h1": "LabelsConflict,AnnotationsConflict", "west": "LabelsConflict,AnnotationsConflict"},
			func(t *testing.T, m Merged) {
				assert.Equal(t, map[string]string{"team": "a"}, m.Labels)
				assert.Empty(t, m.Annotations)
			}},
		{"one that is not valid does not count, however old", []Export{
			export(west, 0, func(e *Export) { e.Service = nil }), export(home, 9)}, nil,
			func(t *testing.T, m Merged) {
				assert.Equal(t, []string{"h1"}, m.Clusters())
				assert.Equal(t, "NoService", m.Conditions["west"][0].Reason)
				assert.Len(t, m.Conditions["west"], 1, "with nothing it can be in conflict")
			}},
	} {
		t.Run(row.name, func(t *testing.T) {
			m := Merge(row.exports)
			for _, one := range m.Exports {
				conditions := m.Conditions[one.From.ID]
				require.Len(t, conditions, 2)
				want := row.conflicts[one.From.ID]
				assert.Equal(t, want != "", conditions[1].Status == metav1.ConditionTrue)
				if want == "" {
					want = "NoConflicts"
				}
				assert.Equal(t, want, conditions[1].Reason, one.From.ID)
			}
			if row.check != nil {
				row.check(t, m)
			}
		})
	}
}

func TestWhatNoAPIServerWouldTakeIsNotValid(t *testing.T) {
	many := func(n int) (all []corev1.ServicePort) {
		for i := range n {
			all = append(all, port("p"+strings.Repeat("x", i%50)+string(rune('a'+i/50)), int32(i+1)))
		}
		return all
	}
	labelled := func(key, value string) func(*Export) {
		return func(e *Export) { e.Object.Spec.ExportedLabels = map[string]string{key: value} }
	}
	named := func(name string) func(*Export) { return func(e *Export) { e.Object.Name = name } }
	for _, row := range []struct {
		name   string
		change func(*Export)
		reason string
	}{
		{"a good one", func(*Export) {}, "Valid"},
		{"a name of 59 characters", named(strings.Repeat("x", 59)), "Valid"},
		{"a name of 60", named(strings.Repeat("x", 60)), "InvalidName"},
		{"a name with a dot", named("web.shop"), "InvalidName"},
		{"no Service", func(e *Export) { e.Service = nil }, "NoService"},
		{"another name for something", spec(func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeExternalName }), "InvalidServiceType"},
		{"the API server", func(e *Export) { e.Service.Namespace, e.Service.Name = "default", "kubernetes" }, "InvalidServiceType"},
		{"too many exports", func(e *Export) { e.TooMany = true }, "TooManyExports"},
		{"no port", ports(), "InvalidPorts"},
		{"a headless one without a port", spec(func(s *corev1.ServiceSpec) { s.ClusterIP, s.Ports = corev1.ClusterIPNone, nil }), "Valid"},
		{"100 ports", ports(many(100)...), "Valid"},
		{"101 ports", ports(many(101)...), "InvalidPorts"},
		{"port 0", ports(port("http", 0)), "InvalidPorts"},
		{"port 65536", ports(port("http", 65536)), "InvalidPorts"},
		{"two of a name", ports(port("http", 1), port("http", 2)), "InvalidPorts"},
		{"two of a number", ports(port("a", 1), port("b", 1)), "InvalidPorts"},
		{"two of which one has no name", ports(port("a", 1), port("", 2)), "InvalidPorts"},
		{"a name that is none", ports(port("Web Site", 1)), "InvalidPorts"},
		{"a protocol that is none", ports(corev1.ServicePort{Port: 1, Protocol: "ICMP"}), "InvalidPorts"},
		{"an application protocol that is none", ports(corev1.ServicePort{Port: 1, AppProtocol: ptr.To("a b")}), "InvalidPorts"},
		{"an affinity that is none", spec(func(s *corev1.ServiceSpec) { s.SessionAffinity = "Cookie" }), "InvalidSessionAffinity"},
		{"an affinity for too long", spec(func(s *corev1.ServiceSpec) {
			s.SessionAffinity = corev1.ServiceAffinityClientIP
			s.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To(int32(86401))}}
		}), "InvalidSessionAffinity"},
		{"a label", labelled("team", "shop"), "Valid"},
		{"a label value that is none", labelled("team", "a b"), "InvalidLabels"},
		{"a label key that is none", labelled("a b", "c"), "InvalidLabels"},
		{"a label of Lodestone", labelled("lodestone.dev/offload", "enabled"), "InvalidLabels"},
		{"a label of Kubernetes", labelled("multicluster.kubernetes.io/service-name", "other"), "InvalidLabels"},
		{"annotations that are long", func(e *Export) {
			e.Object.Spec.ExportedAnnotations = map[string]string{"note": strings.Repeat("x", 9<<10)}
		}, "InvalidLabels"},
	} {
		t.Run(row.name, func(t *testing.T) {
			is := Valid(export(west, 0, row.change))
			assert.Equal(t, row.reason, is.Reason, is.Message)
			assert.Equal(t, row.reason == "Valid", is.Status == metav1.ConditionTrue)
		})
	}
}

func TestOfARemoteClusterOnlySoManyExportsAreTaken(t *testing.T) {
	var all []string
	for i := range 150 {
		all = append(all, fmt.Sprintf("web-%03d", 149-i))
	}
	assert.False(t, TooMany(all, "web-000"))
	assert.False(t, TooMany(all, "web-099"))
	assert.True(t, TooMany(all, "web-100"), "it would be the 101st")
	assert.True(t, TooMany(all, "web-149"))
	assert.False(t, TooMany(all[50:], "web-099"), "of a hundred all are taken")
}

func TestEachClusterHasTheAddressByWhichItReachesAPod(t *testing.T) {
	for _, row := range []struct {
		name            string
		to, from, owner *Cluster
		away            bool
		through         bool
		address         string
		reached         string // empty: not at all
	}{
		{"home's own", home, home, nil, false, false, "10.244.0.7", "10.244.0.7"},
		{"home's that runs in west, at home", home, home, west, false, false, "100.65.0.7", "100.65.0.7"},
		{"home's that runs in a node of others, at home", home, home, nil, true, false, "10.50.0.7", "10.50.0.7"},
		{"home's, in west", west, home, nil, false, false, "10.244.0.7", "100.64.0.7"},
		{"home's, in a cluster that needs no translation", east, home, nil, false, false, "10.244.0.7", "10.244.0.7"},
		{"home's that runs in west, in west", west, home, west, false, false, "100.65.0.7", "10.244.0.7"},
		{"home's that runs in west, in east", east, home, west, false, false, "100.65.0.7", ""},
		{"home's that runs in a node of others, in west", west, home, nil, true, false, "10.50.0.7", ""},
		{"home's that runs in north, in south, both routed", south, home, north, false, false, "10.10.0.7", "10.10.0.7"},
		{"west's own", west, west, nil, false, false, "10.244.0.7", "10.244.0.7"},
		{"west's, at home", home, west, nil, false, false, "10.244.0.7", "100.65.0.7"},
		{"west's, in east", east, west, nil, false, false, "10.244.0.7", ""},
		{"north's, in south", south, north, nil, false, false, "10.10.0.7", "10.10.0.7"},
		{"north's, in east, which the fabric joins", east, north, nil, false, false, "10.10.0.7", ""},
		{"north's second address", home, north, nil, false, false, "fd00:10::7", "fd00:10::7"},
		{"what west says is its pod, and is none", home, west, nil, false, false, "10.96.0.1", ""},
		{"what west says is its pod, and is home's", home, west, nil, false, false, "100.64.0.7", ""},
		{"what west says is its pod, in west itself", west, west, nil, false, false, "10.96.0.1", ""},
		{"an address in disguise", home, west, nil, false, false, "::ffff:10.96.0.1", ""},
		{"west's, in east, through home", east, west, nil, false, true, "10.244.0.7", "100.65.0.7"},
		{"east's, in west, through home", west, east, nil, false, true, "10.9.0.7", "10.9.0.7"},
		{"home's that runs in west, in east, through home", east, home, west, false, true, "100.65.0.7", "100.65.0.7"},
		{"west's, in a third that calls home's so", twin, west, nil, false, true, "10.244.0.7", ""},
		{"north's, in east, through home: it is Routed", east, north, nil, false, true, "10.10.0.7", ""},
		{"what west says is its pod, and is none, through home", east, west, nil, false, true, "10.96.0.1", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			reached, ok := Reach(row.to, row.from, row.owner, row.away, row.through, netip.MustParseAddr(row.address))
			assert.Equal(t, row.reached != "", ok)
			if ok {
				assert.Equal(t, row.reached, reached.String())
			}
		})
	}
}

// destination is a namespace of a cluster to which the node west stands for west.
func destination(to *Cluster, silent ...string) Destination {
	return Destination{To: to, HomeID: "h1", Namespace: "shop",
		Owner: func(node string) (*Cluster, bool) {
			if node == "west" {
				return west, false
			}
			return nil, node == "liqo"
		},
		ThroughHome: func(string) bool { return false },
		Silent:      func(cluster string) bool { return strings.Contains(strings.Join(silent, " "), cluster) }}
}

func slice(name string, addresses ...string) *discoveryv1.EndpointSlice {
	made := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To(int32(8080))}}}
	for _, address := range addresses {
		made.Endpoints = append(made.Endpoints, discoveryv1.Endpoint{Addresses: []string{address}, NodeName: ptr.To("n1"),
			Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}, Hostname: ptr.To("db-0"),
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: "db-0"}})
	}
	return made
}

func TestEndpointSlicesAreThoseOfTheImportAndOfItsService(t *testing.T) {
	from := func(cluster *Cluster, slices ...*discoveryv1.EndpointSlice) Export {
		return export(cluster, 0, func(e *Export) { e.Slices = slices })
	}
	made, left := destination(home).Slices(from(west, slice("a", "10.244.0.7", "10.96.0.1", "127.0.0.1", "web")), mcs.ClusterSetIP)
	require.Len(t, made, 1)
	assert.Equal(t, 3, left, "no pods of west")
	assert.Equal(t, map[string]string{keys.HomeID: "h1", keys.ServiceImport: "web", mcs.LabelServiceName: "web",
		mcs.LabelSourceCluster:       "west",
		discoveryv1.LabelServiceName: "mcs-web", discoveryv1.LabelManagedBy: keys.Driver}, made[0].Labels)
	assert.Equal(t, []discoveryv1.Endpoint{{Addresses: []string{"100.65.0.7"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)},
		Hostname: ptr.To("db-0")}}, made[0].Endpoints, "nodes and pods of west mean nothing at home")

	made, left = destination(west).Slices(from(west, slice("a", "10.244.0.7")), mcs.ClusterSetIP)
	assert.Zero(t, left)
	assert.Equal(t, "n1", *made[0].Endpoints[0].NodeName, "of its own it has them, for internalTrafficPolicy Local")

	made, left = destination(east).Slices(from(west, slice("a", "10.244.0.7")), mcs.ClusterSetIP)
	assert.Empty(t, made, "the fabric joins them with home alone")
	assert.Zero(t, left, "which is no fault of west")

	made, _ = destination(home, "west").Slices(from(west, slice("a", "10.244.0.7")), mcs.ClusterSetIP)
	assert.False(t, *made[0].Endpoints[0].Conditions.Ready, "nobody knows how it is")
	made, _ = destination(west, "west").Slices(from(west, slice("a", "10.244.0.7")), mcs.ClusterSetIP)
	assert.True(t, *made[0].Endpoints[0].Conditions.Ready)

	made, _ = destination(home).Slices(from(west, slice("a", "10.244.0.7")), mcs.Headless)
	require.Len(t, made, 2)
	byName := map[bool]*discoveryv1.EndpointSlice{}
	for _, one := range made {
		_, ofService := one.Labels[discoveryv1.LabelServiceName]
		byName[ofService] = one
	}
	assert.Equal(t, "db-0", *byName[false].Endpoints[0].Hostname)
	assert.Equal(t, "web", byName[false].Labels[mcs.LabelServiceName])
	assert.Equal(t, "db-0--west", *byName[true].Endpoints[0].Hostname)
	assert.NotContains(t, byName[true].Labels, mcs.LabelServiceName, "else it would be there twice")
	for _, one := range made {
		assert.Contains(t, one.Labels, corev1.IsHeadlessService, "kube-proxy leaves both alone")
	}

	var slices []*discoveryv1.EndpointSlice
	for i := range 30 {
		var addresses []string
		for j := range 50 {
			addresses = append(addresses, netip.AddrFrom4([4]byte{10, 244, byte(i), byte(j + 1)}).String())
		}
		slices = append(slices, slice("s"+string(rune('a'+i)), addresses...))
	}
	made, left = destination(home).Slices(from(west, slices...), mcs.ClusterSetIP)
	assert.Len(t, made, 20)
	assert.Equal(t, 500, left)

	strange := slice("a", "10.244.0.7")
	strange.AddressType = discoveryv1.AddressTypeFQDN
	made, left = destination(home).Slices(from(west, strange), mcs.ClusterSetIP)
	assert.Empty(t, made)
	assert.Equal(t, 1, left)
}

func TestObjectsThatAreAsWantedAreNotWritten(t *testing.T) {
	merged := Merge([]Export{export(home, 0)})
	d := destination(home)
	imported := d.Import("web", merged)
	imported.UID = "u1"
	service := d.Service(imported)
	assert.Equal(t, "u1", string(service.OwnerReferences[0].UID), "it goes with the import")
	// What an API server adds.
	service.Spec.ClusterIP, service.Spec.ClusterIPs = "10.96.0.9", []string{"10.96.0.9"}
	service.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
	service.Spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyCluster)
	service.Spec.Ports[0].TargetPort.IntVal = 80
	_, changed, replace := MergeService(service, d.Service(imported))
	assert.False(t, changed || replace)
	next, changed := MergeImport(imported, d.Import("web", merged), service)
	assert.True(t, changed)
	assert.Equal(t, []string{"10.96.0.9"}, next.Spec.IPs)
	assert.Equal(t, corev1.ServiceInternalTrafficPolicyCluster, *next.Spec.InternalTrafficPolicy, "as each exported Service has it")
	_, changed = MergeImport(next, d.Import("web", merged), service)
	assert.False(t, changed)

	// The Service of an import that has become headless has another address, which cannot be changed.
	headless := Merge([]Export{export(home, 0, spec(func(s *corev1.ServiceSpec) { s.ClusterIP = corev1.ClusterIPNone }))})
	next, _ = MergeImport(next, d.Import("web", headless), service)
	assert.Empty(t, next.Spec.IPs)
	assert.Empty(t, next.Spec.IPFamilies)
	_, _, replace = MergeService(service, d.Service(next))
	assert.True(t, replace)
	anew := d.Service(next)
	anew.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
	next, _ = MergeImport(next, d.Import("web", headless), anew)
	assert.Empty(t, next.Spec.IPs, "it has no address")
	assert.Equal(t, anew.Spec.IPFamilies, next.Spec.IPFamilies)
	both := anew.DeepCopy()
	both.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyRequireDualStack)
	both.Spec.IPFamilies = append(both.Spec.IPFamilies, corev1.IPv6Protocol)
	one, changed, replace := MergeService(both, d.Service(next))
	assert.True(t, changed, "an API server gives both families to a headless Service that has no selector and names no policy")
	assert.False(t, replace)
	assert.Equal(t, corev1.IPFamilyPolicySingleStack, *one.Spec.IPFamilyPolicy)
	tampered := service.DeepCopy()
	tampered.Spec.ExternalIPs = []string{"1.2.3.4"}
	maps.Copy(tampered.Labels, map[string]string{keys.ServiceImport: "other"})
	fixed, changed, _ := MergeService(tampered, d.Service(imported))
	assert.True(t, changed)
	assert.Empty(t, fixed.Spec.ExternalIPs)
	assert.Equal(t, "web", fixed.Labels[keys.ServiceImport])
}

func TestReadySaysWhere(t *testing.T) {
	facts := func(change func(*Facts)) Facts {
		f := Facts{Export: export(west, 0), Valid: true, Open: true, HomeNamespace: "shop", Clusters: []string{"h1", "west"}}
		change(&f)
		return f
	}
	for _, row := range []struct {
		name   string
		change func(*Facts)
		reason string
		says   string
	}{
		{"all is well", func(*Facts) {}, "Exported", "the Service can be used in clusters h1, west"},
		{"one has no API", func(f *Facts) { f.Absent = map[string]string{"east": "it is not there"} }, "Exported",
			"h1, west; not in cluster east: it is not there"},
		{"not valid", func(f *Facts) { f.Valid = false }, "Pending", "Valid"},
		{"the namespace is closed", func(f *Facts) { f.Open = false }, "NotOffloaded", "lodestone.dev/offload=enabled"},
		{"the networks are apart", func(f *Facts) {
			f.Open, f.Export.From = false, &Cluster{ID: "west", Network: v1alpha1.Isolated}
		}, "NetworkNotJoined", "spec.podNetwork"},
		{"some cannot", func(f *Facts) { f.Problems = map[string]string{"west": "b", "east": "a"} }, "Failed",
			"cluster east: a; cluster west: b"},
		{"some endpoints are left out", func(f *Facts) { f.LeftOut = 3 }, "Failed", "3 endpoints are left out"},
	} {
		t.Run(row.name, func(t *testing.T) {
			is := Ready(facts(row.change))
			assert.Equal(t, row.reason, is.Reason)
			assert.Contains(t, is.Message, row.says)
			assert.Equal(t, row.reason == "Exported", is.Status == metav1.ConditionTrue)
		})
	}
}
