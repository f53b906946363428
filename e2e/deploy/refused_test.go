package deploy

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/pkg/clients"
)

// ours returns a resource of version v1alpha1 of one of our groups.
func ours(group, name string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: "v1alpha1", Resource: name}
}

// kinds are our kinds, each with a spec that is good.
var kinds = map[string]struct {
	resource schema.GroupVersionResource
	cluster  bool
	spec     string
}{
	"VolumeMove": {resource: ours("lodestone.dev", "volumemoves"),
		spec: `{"claims": ["data"], "target": {"cluster": "west"}}`},
	"VolumeReplica": {resource: ours("lodestone.dev", "volumereplicas"),
		spec: `{"claims": ["data"], "standbys": [{"cluster": "west"}]}`},
	"RemoteCluster": {resource: ours("lodestone.dev", "remoteclusters"), cluster: true,
		spec: `{"kubeconfigSecretRef": {"namespace": "lodestone-system", "name": "west"}}`},
	"HomeCluster": {resource: ours("remote.lodestone.dev", "homeclusters"), cluster: true,
		spec: `{}`},
	"NamespaceRequest": {resource: ours("remote.lodestone.dev", "namespacerequests"),
		spec: `{"homeNamespace": "shop"}`},
	"NetworkLink": {resource: ours("network.lodestone.dev", "networklinks"),
		spec: `{}`},
	"ShadowPod": {resource: ours("remote.lodestone.dev", "shadowpods"),
		spec: `{"home": {"cluster": "home", "namespace": "default", "name": "a", "uid": "1"}, "pod": {}}`},
}

// objectOf returns an object of a kind whose spec has fields besides the good ones.
func objectOf(t *testing.T, kind, name, fields string) *unstructured.Unstructured {
	t.Helper()
	spec, more := map[string]any{}, map[string]any{}
	require.NoError(t, json.Unmarshal([]byte(kinds[kind].spec), &spec))
	require.NoError(t, json.Unmarshal([]byte(fields), &more), fields)
	for field, value := range more {
		if spec[field] = value; value == nil {
			delete(spec, field)
		}
	}
	o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	o.SetGroupVersionKind(kinds[kind].resource.GroupVersion().WithKind(kind))
	o.SetName(name)
	return o
}

func clientOf(t *testing.T, kind string) dynamic.ResourceInterface {
	t.Helper()
	all, err := dynamic.NewForConfig(cluster.AdminConfig())
	require.NoError(t, err)
	if kinds[kind].cluster {
		return all.Resource(kinds[kind].resource)
	}
	return all.Resource(kinds[kind].resource).Namespace(metav1.NamespaceDefault)
}

// TestWhatCannotWorkIsRefused tries each field wrong whose values a schema can judge.
func TestWhatCannotWorkIsRefused(t *testing.T) {
	apply(t, "base")
	apply(t, "remote")
	apply(t, "network/program/crds")
	dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	for kind := range kinds {
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			_, err := clientOf(t, kind).Create(t.Context(), objectOf(t, kind, "good", `{}`), dryRun)
			assert.NoError(c, err, kind)
		}, waitLong, poll)
	}
	long, longer, key := strings.Repeat("a", 254), strings.Repeat("a", 1025), strings.Repeat("k", 44)
	tried := map[string][]string{}
	for _, row := range []struct{ kind, fields, says string }{
		{"VolumeMove", `{"claims": []}`, "should have at least 1 items"},
		{"VolumeMove", `{"claims": null}`, "spec.claims: Required value"},
		{"VolumeMove", `{"claims": ["data", "data"]}`, "Duplicate value"},
		{"VolumeMove", `{"claims": ["` + long + `"]}`, "may not be more than 253"},
		{"VolumeMove", `{"claims": "data"}`, "must be of type array"},
		{"VolumeMove", `{"claims": ["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17"]}`, "must have at most 16 items"},
		{"VolumeMove", `{"target": {}}`, "name either a cluster or a node"},
		{"VolumeMove", `{"target": {"cluster": "west", "node": "n"}}`, "name either a cluster or a node"},
		{"VolumeMove", `{"target": {"cluster": ""}}`, "should be at least 1 chars"},
		{"VolumeMove", `{"className": "` + long + `"}`, "may not be more than 253"},
		{"VolumeMove", `{"verify": "Twice"}`, `supported values: "Quick", "Full"`},
		{"VolumeMove", `{"offline": "Maybe"}`, "supported values"},
		{"VolumeMove", `{"passes": -1}`, "greater than or equal to 0"},
		{"VolumeMove", `{"passes": 21}`, "less than or equal to 20"},
		{"VolumeMove", `{"passes": 1e12}`, "spec.passes"},
		{"VolumeMove", `{"bandwidthLimit": "fast"}`, "spec.bandwidthLimit"},
		{"VolumeMove", `{"bandwidthLimit": 0}`, "how many bytes a second"},
		{"VolumeMove", `{"bandwidthLimit": "-5Mi"}`, "how many bytes a second"},
		{"VolumeMove", `{"bandwidthLimit": "1e99999999999999999999"}`, "spec.bandwidthLimit"},
		{"VolumeMove", `{"keepSourceFor": "1d"}`, "keepSourceFor is a time in hours, minutes and seconds, such as 90m or 24h"},
		{"VolumeMove", `{"keepSourceFor": "-1h"}`, "keepSourceFor is a time"},
		{"VolumeMove", `{"keepSourceFor": "99999999999999h"}`, "keepSourceFor is a time"},
		{"VolumeMove", `{"keepSourceFor": 3600}`, "must be of type string"},
		{"VolumeMove", `{"rollBackAfter": "soon"}`, "rollBackAfter is a time in hours, minutes and seconds"},
		{"VolumeMove", `{"rollBackAfter": ""}`, "rollBackAfter is a time"},
		{"VolumeMove", `{"ttlSecondsAfterFinished": -1}`, "greater than or equal to 0"},
		{"VolumeMove", `{"ttlSecondsAfterFinished": 1e12}`, "spec.ttlSecondsAfterFinished"},
		{"VolumeMove", `{"adopt": "1", "claims": ["a", "b"]}`, "adopt is for one claim"},
		{"VolumeMove", `{"adopt": "1", "dryRun": true}`, "has no dry run"},
		{"VolumeMove", `{"into": "first", "adopt": "1"}`, "into goes with neither adopt, className nor target.node"},
		{"VolumeMove", `{"into": "first", "className": "fast"}`, "into goes with neither"},
		{"VolumeMove", `{"into": "first", "target": {"node": "n"}}`, "into goes with neither"},
		{"VolumeMove", `{"into": ""}`, "should be at least 1 chars"},
		{"VolumeMove", `{"failover": {}}`, "spec.failover.replica: Required value"},
		{"VolumeMove", `{"failover": {"replica": ""}}`, "should be at least 1 chars"},
		{"VolumeMove", `{"failover": {"replica": "data", "fence": "Off"}}`, `supported values: "Proven", "Lease", "Declared"`},
		{"VolumeMove", `{"failover": {"replica": "data", "version": "` + long + `"}}`, "may not be more than 253"},
		{"VolumeMove", `{"failover": {"replica": "data"}, "target": {"node": "n"}}`, "failover is to a cluster"},
		{"VolumeMove", `{"failover": {"replica": "data"}, "into": "first"}`, "goes with neither adopt, into, className nor rootless"},
		{"VolumeMove", `{"failover": {"replica": "data"}, "rootless": true}`, "goes with neither adopt, into, className nor rootless"},
		{"VolumeMove", `{"action": "Stop"}`, "supported values"},
		{"VolumeReplica", `{"claims": []}`, "should have at least 1 items"},
		{"VolumeReplica", `{"claims": ["a", "b", "c", "d", "e", "f", "g", "h", "i"]}`, "must have at most 8 items"},
		{"VolumeReplica", `{"claims": ["data", "data"]}`, "Duplicate value"},
		{"VolumeReplica", `{"standbys": null}`, "spec.standbys: Required value"},
		{"VolumeReplica", `{"standbys": [{"cluster": "west"}, {"cluster": "east"}]}`, "a VolumeReplica has one standby"},
		{"VolumeReplica", `{"standbys": [{"cluster": ""}]}`, "should be at least 1 chars"},
		{"VolumeReplica", `{"standbys": [{"cluster": "west", "className": "` + long + `"}]}`, "may not be more than 253"},
		{"VolumeReplica", `{"paused": "maybe"}`, "must be of type boolean"},
		{"VolumeReplica", `{"rpo": "9s"}`, "of at least 10s"},
		{"VolumeReplica", `{"rpo": "1d"}`, "rpo is a time in hours, minutes and seconds"},
		{"VolumeReplica", `{"consistency": "Live"}`, "supported values"},
		{"VolumeReplica", `{"consistency": "Frozen"}`, "consistency: Frozen needs hooks"},
		{"VolumeReplica", `{"hooks": {"freeze": ["a"], "thaw": ["b"]}}`, "hooks are for that alone: give both or neither"},
		{"VolumeReplica", `{"consistency": "Frozen", "hooks": {"freeze": ["a"]}}`, "spec.hooks.thaw: Required value"},
		{"VolumeReplica", `{"consistency": "Frozen", "hooks": {"freeze": [], "thaw": ["b"]}}`, "should have at least 1 items"},
		{"VolumeReplica", `{"consistency": "Frozen", "hooks": {"freeze": [""], "thaw": ["b"]}}`, "should be at least 1 chars"},
		{"VolumeReplica", `{"consistency": "Frozen", "hooks": {"freeze": ["a"], "thaw": ["b"], "timeout": "3m"}}`, "from 1s to 2m"},
		{"VolumeReplica", `{"consistency": "Frozen", "hooks": {"freeze": ["a"], "thaw": ["b"], "timeout": "0s"}}`, "from 1s to 2m"},
		{"VolumeReplica", `{"consistency": "Frozen", "hooks": {"freeze": ["a"], "thaw": ["b"], "container": "` + long + `"}}`,
			"may not be more than 63"},
		{"VolumeReplica", `{"versions": {"accepted": "` + long + `"}}`, "may not be more than 253"},
		{"VolumeReplica", `{"versions": {"in": "Files", "keep": 2}}`, "supported values"},
		{"VolumeReplica", `{"versions": {"in": "Slots"}}`, "in: Slots keeps 2 versions at most: say keep: 2"},
		{"VolumeReplica", `{"versions": {"in": "Slots", "keep": 3}}`, "in: Slots keeps 2 versions at most: say keep: 2"},
		{"VolumeReplica", `{"versions": {"keep": 0}}`, "greater than or equal to 1"},
		{"VolumeReplica", `{"versions": {"keep": 33}}`, "less than or equal to 32"},
		{"VolumeReplica", `{"versions": {"daily": -1}}`, "greater than or equal to 0"},
		{"VolumeReplica", `{"versions": {"daily": 91}}`, "less than or equal to 90"},
		{"VolumeReplica", `{"versions": {"pinAbove": -1}}`, "greater than or equal to 0"},
		{"VolumeReplica", `{"versions": {"pinAbove": 100}}`, "less than or equal to 99"},
		{"VolumeReplica", `{"versions": {"in": "Slots", "keep": 2, "daily": 1}}`, "none of earlier days: leave daily out"},
		{"VolumeReplica", `{"scrubEvery": "59m"}`, "of at least 1h"},
		{"VolumeReplica", `{"scrubEvery": "7d"}`, "scrubEvery is a time in hours, minutes and seconds"},
		{"VolumeReplica", `{"automaticFailover": {"after": "9s"}}`, "after is a time in hours, minutes and seconds of at least 10s"},
		{"VolumeReplica", `{"automaticFailover": {"maxLoss": "0s"}}`, "maxLoss is a time in hours, minutes and seconds"},
		{"VolumeReplica", `{"bandwidthLimit": "0"}`, "how many bytes a second"},

		{"RemoteCluster", `{"kubeconfigSecretRef": null}`, "spec.kubeconfigSecretRef: Required value"},
		{"RemoteCluster", `{"kubeconfigSecretRef": {"namespace": "", "name": "west"}}`, "should be at least 1 chars"},
		{"RemoteCluster", `{"kubeconfigSecretRef": {"namespace": "a", "name": ""}}`, "should be at least 1 chars"},
		{"RemoteCluster", `{"podNetwork": "Bridged"}`, "supported values"},
		{"RemoteCluster", `{"podNetwork": "Fabric"}`, "podNetwork Fabric needs podCIDRs"},
		{"RemoteCluster", `{"podNetwork": "Fabric", "podCIDRs": ["10.0.0.0/16"], "virtualNode": "Disabled"}`, "needs Lodestone's virtual node"},
		{"RemoteCluster", `{"podCIDRs": ["10.244.0.1/16"]}`, "each of podCIDRs is a range of addresses"},
		{"RemoteCluster", `{"podCIDRs": ["0.0.0.0/0"]}`, "each of podCIDRs is a range of addresses"},
		{"RemoteCluster", `{"podNetwork": "Fabric", "podCIDRs": ["10.244.0.0/16"], "podTranslations": [{"podCIDR": "10.244.0.0/16", ` +
			`"reachedAs": "100.64.0.0/17"}]}`, "podCIDR and reachedAs are IPv4 ranges of one length"},
		{"RemoteCluster", `{"podNetwork": "Fabric", "podCIDRs": ["fd00::/48"], "podTranslations": [{"podCIDR": "fd00::/48", ` +
			`"reachedAs": "fd01::/48"}]}`, "podCIDR and reachedAs are IPv4 ranges of one length"},
		{"RemoteCluster", `{"podNetwork": "Fabric", "podCIDRs": ["10.1.0.0/16"], "podTranslations": [{"podCIDR": "10.244.0.0/16", ` +
			`"reachedAs": "100.64.0.0/16"}]}`, "each podCIDR of podTranslations is one of podCIDRs"},
		{"RemoteCluster", `{"podNetwork": "Routed", "homePodTranslations": [{"podCIDR": "10.244.0.0/16", "reachedAs": "100.64.0.0/16"}]}`,
			"podTranslations and homePodTranslations need podNetwork Fabric"},
		{"RemoteCluster", `{"podCarrier": "Pigeon"}`, "supported values"},
		{"RemoteCluster", `{"podTransit": "Maybe"}`, "supported values"},
		{"RemoteCluster", `{"podBandwidthLimit": 65535}`, "at least 64Ki"},
		{"RemoteCluster", `{"podBandwidthLimit": "-5Mi"}`, "at least 64Ki"},
		{"RemoteCluster", `{"podLease": "59s"}`, "podLease is a time in hours, minutes and seconds from 1m to 24h"},
		{"RemoteCluster", `{"podLease": "25h"}`, "podLease is a time in hours, minutes and seconds from 1m to 24h"},
		{"RemoteCluster", `{"podLease": "soon"}`, "podLease"},
		{"RemoteCluster", `{"podLease": "3m", "virtualNode": "Disabled"}`, "podLease needs Lodestone's virtual node"},
		{"RemoteCluster", `{"homeServer": "home:6443"}`, "homeServer is the address of home's API server"},
		{"RemoteCluster", `{"homeServer": "http://home:6443"}`, "homeServer is the address of home's API server"},
		{"RemoteCluster", `{"homeServer": "https://home:6443/k8s"}`, "homeServer is the address of home's API server"},
		{"RemoteCluster", `{"namespaces": {"strategy": "Prefixed"}}`, "supported values"},
		{"RemoteCluster", `{"virtualNode": "Maybe"}`, "supported values"},
		{"RemoteCluster", `{"topology": {"zone": "no label"}}`, "spec.topology.zone"},
		{"RemoteCluster", `{"topology": {"region": "` + strings.Repeat("a", 64) + `"}}`, "may not be more than 63"},
		{"RemoteCluster", `{"moveRepository": {}}`, "and not both"},
		{"RemoteCluster", `{"moveRepository": {"secretName": "a", "claimName": "b"}}`, "and not both"},
		{"RemoteCluster", `{"moveRepository": {"claimName": "No"}}`, "spec.moveRepository.claimName"},

		{"HomeCluster", `{"offer": {"cpu": "much"}}`, "spec.offer"},
		{"HomeCluster", `{"offer": {"cpu": "-1"}}`, "each value of offer is a quantity of 0 or more"},
		{"HomeCluster", `{"offer": {"cpu": "1e99999999999999999999"}}`, "spec.offer"},
		{"HomeCluster", `{"namespaces": {"quota": {"cpu": -1}}}`, "each value of quota is a quantity of 0 or more"},
		{"HomeCluster", `{"namespaces": {"limits": [{"type": "Container", "default": {"cpu": "much"}}]}}`, "spec.namespaces.limits[0].default"},
		{"HomeCluster", `{"namespaces": {"limits": [{"type": "Container", "defaultRequest": {"cpu": "much"}}]}}`,
			"spec.namespaces.limits[0].defaultRequest"},
		{"HomeCluster", `{"namespaces": {"limits": [{"type": "Container", "max": {"cpu": "much"}}]}}`, "spec.namespaces.limits[0].max"},
		{"HomeCluster", `{"namespaces": {"limits": [{"type": "Container", "min": {"cpu": "much"}}]}}`, "spec.namespaces.limits[0].min"},
		{"HomeCluster", `{"namespaces": {"limits": [{"type": "Container", "maxLimitRequestRatio": {"cpu": "much"}}]}}`, "maxLimitRequestRatio"},
		{"HomeCluster", `{"priorityClasses": ["a", "a"]}`, "Duplicate value"},
		{"HomeCluster", `{"serviceTypes": ["ClusterIP", "ClusterIP"]}`, "Duplicate value"},
		{"HomeCluster", `{"storageClasses": ["a", "a"]}`, "Duplicate value"},
		{"HomeCluster", `{"tolerations": ["a", "a"]}`, "Duplicate value"},
		{"HomeCluster", `{"network": {"podCIDRs": ["10.0.0.0/16"], "namespaces": ["a", "a"]}}`, "Duplicate value"},
		{"HomeCluster", `{"namespaces": {"maximum": -1}}`, "greater than or equal to 0"},
		// API servers before Kubernetes 1.36 do not look at the format int32, and no program could read what they stored.
		{"HomeCluster", `{"namespaces": {"maximum": 1e12}}`, "spec.namespaces.maximum"},
		{"HomeCluster", `{"namespaces": {"podSecurity": "lax"}}`, "supported values"},
		{"HomeCluster", `{"namespaces": {"names": ["a", "a"]}}`, "Duplicate value"},
		{"HomeCluster", `{"probes": [{"cluster": "west", "server": "http://192.0.2.10:6443"}]}`, "server is an address such as"},
		{"HomeCluster", `{"probes": [{"cluster": "west", "server": "192.0.2.10:6443"}]}`, "server is an address such as"},
		{"HomeCluster", `{"probes": [{"cluster": "west", "server": "https://:6443"}]}`, "server is an address such as"},
		{"HomeCluster", `{"probes": [{"cluster": "west", "server": "https://192.0.2.10/?a=b"}]}`, "server is an address such as"},
		{"HomeCluster", `{"probes": [{"cluster": null, "server": "https://192.0.2.10"}]}`, "spec.probes[0].cluster"},
		{"HomeCluster", `{"replicas": {"minimumAge": "3 days"}}`, "spec.replicas.minimumAge"},
		{"HomeCluster", `{"replicas": {"minimumAge": "-1h"}}`, "minimumAge is a time in hours, minutes and seconds of at most 8784h"},
		{"HomeCluster", `{"replicas": {"minimumAge": "9000h"}}`, "minimumAge is a time in hours, minutes and seconds of at most 8784h"},
		{"HomeCluster", `{"succeeds": "Not an ID"}`, "spec.succeeds"},
		{"HomeCluster", `{"succeeds": "wrong"}`, "succeeds names another home cluster, which is lost"},
		{"HomeCluster", `{"succeeds": "` + long + `"}`, "may not be more than 40"},
		{"HomeCluster", `{"network": {}}`, "spec.network.podCIDRs: Required value"},
		{"HomeCluster", `{"network": {"podCIDRs": ["10.0.0.0/16"], "bandwidthLimit": "1Ki"}}`, "at least 64Ki"},
		{"HomeCluster", `{"network": {"podCIDRs": ["10.0.0.0/16"], "bandwidthLimit": "fast"}}`, "spec.network.bandwidthLimit"},
		{"HomeCluster", `{"network": {"podCIDRs": ["10.244.0.1/16"]}}`, "each of podCIDRs is a range of addresses"},
		{"HomeCluster", `{"network": {"podCIDRs": ["10.0.0.0/16"], "directTransit": "Maybe"}}`, "supported values"},
		{"HomeCluster", `{"network": {"podCIDRs": ["10.0.0.0/16"], "transitPodCIDRs": ["10.3.0.1/16"]}}`, "each of transitPodCIDRs is a range of addresses"},

		{"NamespaceRequest", `{"homeNamespace": null}`, "spec.homeNamespace: Required value"},

		{"NetworkLink", `{"podCIDRs": ["10.0.0.0/16", "10.0.0.0/16"]}`, "Duplicate value"},
		{"NetworkLink", `{"podTranslations": [{"podCIDR": "` + long + `", "reachedAs": "100.64.0.0/16"}]}`, "may not be more than 18"},
		{"NetworkLink", `{"podTranslations": [{"podCIDR": "10.0.0.0/16", "reachedAs": "` + long + `"}]}`, "may not be more than 18"},
		{"NetworkLink", `{"gateways": [{"name": ""}]}`, "should be at least 1 chars"},
		{"NetworkLink", `{"gateways": [{"name": "a", "address": "` + longer + `"}]}`, "may not be more than 263"},
		{"NetworkLink", `{"gateways": [{"name": "a", "keys": ["k", "k"]}]}`, "Duplicate value"},
		{"NetworkLink", `{"gateways": [{"name": "a", "mtu": 65536}]}`, "less than or equal to 65535"},
		{"NetworkLink", `{"gateways": [{"name": "a", "wireGuard": {"publicKey": "` + key + `", "port": 65536}}]}`, "less than or equal to 65535"},
		{"NetworkLink", `{"gateways": [{"name": "a", "wireGuard": {"publicKey": "short"}}]}`, "should be at least 44 chars"},
		{"NetworkLink", `{"probes": ["10.0.0.1", "10.0.0.1"]}`, "Duplicate value"},
		{"NetworkLink", `{"bandwidthLimit": "fast"}`, "spec.bandwidthLimit"},
		{"NetworkLink", `{"carrier": "Pigeon"}`, "supported values"},
		{"NetworkLink", `{"transit": [{"cluster": ""}]}`, "should be at least 1 chars"},
		{"NetworkLink", `{"transit": [{"cluster": "east", "podCIDRs": ["10.0.0.0/16", "10.0.0.0/16"]}]}`, "Duplicate value"},
		{"NetworkLink", `{"transit": [{"cluster": "east", "mtu": -1}]}`, "greater than or equal to 0"},
		{"NetworkLink", `{"transit": [{"cluster": "east", "refused": "` + longer + `"}]}`, "may not be more than 1024"},
		{"NetworkLink", `{"transit": [{"cluster": "east", "direct": {"lanes": -1}}]}`, "greater than or equal to 0"},
		{"NetworkLink", `{"transit": [{"cluster": "east", "direct": {"up": -1}}]}`, "greater than or equal to 0"},
		{"NetworkLink", `{"transit": [{"cluster": "east", "direct": {"message": "` + longer + `"}}]}`, "may not be more than 1024"},
		{"NetworkLink", `{"transit": [{"cluster": "east", "gateways": [{"name": ""}]}]}`, "should be at least 1 chars"},
		{"NetworkLink", `{"transit": [{"cluster": "east", "gateways": [{"name": "a", "address": "` + longer + `"}]}]}`,
			"may not be more than 263"},
		{"NetworkLink", `{"transit": [{"cluster": "east", "gateways": [{"name": "a", "keys": ["k", "k"]}]}]}`, "Duplicate value"},
		{"NetworkLink", `{"transit": [{"cluster": "east", "gateways": [{"name": "a", "mtu": 65536}]}]}`, "less than or equal to 65535"},
		{"NetworkLink", `{"transit": [{"cluster": "east", "gateways": [{"name": "a", "wireGuard": {"publicKey": "` + key + `", "port": -1}}]}]}`,
			"greater than or equal to 0"},
		{"NetworkLink", `{"transit": [{"cluster": "east", "gateways": [{"name": "a", "wireGuard": {"publicKey": "short"}}]}]}`,
			"should be at least 44 chars"},

		{"ShadowPod", `{"home": null}`, "spec.home: Required value"},
	} {
		t.Run(row.kind+" "+row.fields[:min(len(row.fields), 70)], func(t *testing.T) {
			_, err := clientOf(t, row.kind).Create(t.Context(), objectOf(t, row.kind, "wrong", row.fields), dryRun)
			require.True(t, apierrors.IsInvalid(err) || apierrors.IsBadRequest(err), "%v", err)
			assert.ErrorContains(t, err, row.says)
			var fields any
			require.NoError(t, json.Unmarshal([]byte(row.fields), &fields))
			tried[row.kind] = append(tried[row.kind], blamed(err, given(fields, "spec"))...)
		})
	}
	requireAllTried(t, tried)
	for _, name := range []string{"home", "west.one", strings.Repeat("a", 64)} {
		_, err := clientOf(t, "RemoteCluster").Create(t.Context(), objectOf(t, "RemoteCluster", name, `{}`), dryRun)
		assert.True(t, apierrors.IsInvalid(err), "RemoteCluster %s: %v", name, err)
	}
	_, err := clientOf(t, "HomeCluster").Create(t.Context(), objectOf(t, "HomeCluster", strings.Repeat("a", 41), `{}`), dryRun)
	assert.ErrorContains(t, err, "at most 40 lower-case letters")
}

func TestWhatCannotBeChangedIsRefused(t *testing.T) {
	apply(t, "base")
	apply(t, "remote")
	for _, row := range []struct{ kind, from, to, says string }{
		{"VolumeMove", `{}`, `{"claims": ["other"]}`, "the claims of a move cannot be changed"},
		{"VolumeMove", `{}`, `{"target": {"cluster": "east"}}`, "the target of a move cannot be changed"},
		{"VolumeMove", `{"className": "a"}`, `{"className": "b"}`, "the class of a move cannot be changed"},
		{"VolumeMove", `{}`, `{"className": "b"}`, "only action, keepSourceFor, rollBackAfter and ttlSecondsAfterFinished can be changed"},
		{"VolumeMove", `{}`, `{"bandwidthLimit": "1Mi"}`, "only action, keepSourceFor"},
		{"VolumeMove", `{}`, `{"verify": "Full"}`, "verify cannot be changed"},
		{"VolumeMove", `{}`, `{"passes": 1}`, "passes cannot be changed"},
		{"VolumeMove", `{"dryRun": true}`, `{"dryRun": false}`, "dryRun cannot be changed"},
		{"VolumeMove", `{}`, `{"failover": {"replica": "data"}}`, "only action, keepSourceFor"},
		{"VolumeMove", `{"failover": {"replica": "data"}}`, `{"failover": {"fence": "Declared"}}`, "failover cannot be changed"},
		{"VolumeMove", `{"action": "Abort"}`, `{"action": "Move"}`, "an action cannot be taken back"},
		{"VolumeMove", `{}`, `{"keepSourceFor": "1w"}`, "keepSourceFor is a time"},
		{"VolumeReplica", `{}`, `{"claims": ["other"]}`, "the claims of a VolumeReplica cannot be changed"},
		{"VolumeReplica", `{}`, `{"standbys": [{"cluster": "east"}]}`, "the standby of a VolumeReplica cannot be changed"},
		{"VolumeReplica", `{}`, `{"versions": {"in": "Slots", "keep": 2}}`, "what versions are in cannot be changed"},
		{"VolumeReplica", `{"versions": {"in": "Slots", "keep": 2}}`, `{"versions": {"in": "Snapshots"}}`, "what versions are in cannot be changed"},
		{"VolumeReplica", `{}`, `{"rpo": "1h30m", "paused": true, "versions": {"keep": 1, "daily": 7}, "scrubEvery": "168h", "bandwidthLimit": "50Mi"}`, ""},
		{"VolumeMove", `{}`, `{"keepSourceFor": "2h30m", "rollBackAfter": "0s", "ttlSecondsAfterFinished": 60, "action": "Abort"}`, ""},
		{"RemoteCluster", `{}`, `{"namespaces": {"strategy": "Suffixed"}}`, "namespaces.strategy cannot be changed"},
		{"ShadowPod", `{}`, `{"home": {"cluster": "other"}}`, "spec.home"},
	} {
		t.Run(row.kind+" "+row.to, func(t *testing.T) {
			client, name := clientOf(t, row.kind), fmt.Sprintf("changed-%d", time.Now().UnixNano())
			_, err := client.Create(t.Context(), objectOf(t, row.kind, name, row.from), metav1.CreateOptions{})
			require.NoError(t, err)
			t.Cleanup(func() { _ = client.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}) })
			_, err = client.Patch(t.Context(), name, types.MergePatchType, []byte(`{"spec": `+row.to+`}`), metav1.PatchOptions{})
			if row.says == "" {
				require.NoError(t, err)
				return
			}
			require.True(t, apierrors.IsInvalid(err), "%v", err)
			assert.ErrorContains(t, err, row.says)
		})
	}
}

// TestAMoveThatAnOlderSchemaHasLetPassHidesNoOther stores one while the schema has no rules, as before an upgrade.
func TestAMoveThatAnOlderSchemaHasLetPassHidesNoOther(t *testing.T) {
	apply(t, "base")
	all, err := dynamic.NewForConfig(cluster.AdminConfig())
	require.NoError(t, err)
	definitions := all.Resource(schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
	})
	const rules = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/keepSourceFor/x-kubernetes-validations"
	must.Patch(t, definitions, "volumemoves.lodestone.dev", types.JSONPatchType, []byte(`[{"op":"remove","path":"`+rules+`"}]`))
	moves := clientOf(t, "VolumeMove")
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		_, err := moves.Create(t.Context(), objectOf(t, "VolumeMove", "of-days", `{"keepSourceFor": "1d"}`), metav1.CreateOptions{})
		assert.NoError(c, err)
	}, waitLong, poll)
	t.Cleanup(func() { _ = moves.Delete(context.WithoutCancel(t.Context()), "of-days", metav1.DeleteOptions{}) })
	_, err = moves.Create(t.Context(), objectOf(t, "VolumeMove", "of-hours", `{"keepSourceFor": "24h"}`), metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = moves.Delete(context.WithoutCancel(t.Context()), "of-hours", metav1.DeleteOptions{}) })
	apply(t, "base")

	client, err := clients.NewVolumeMoveClient(cluster.AdminConfig())
	require.NoError(t, err)
	informer := clients.NewVolumeMoveInformer(client)
	go informer.RunWithContext(t.Context())
	require.Eventually(t, informer.HasSynced, waitLong, poll)
	assert.Equal(t, []string{"default/of-hours"}, informer.GetStore().ListKeys())
}
