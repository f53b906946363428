package install

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

func parsed(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	if text == "" {
		return nil
	}
	object := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(text), &object.Object))
	return object
}

func TestRolesAndBindingsAreComparedByWhatTheyGive(t *testing.T) {
	const (
		role = `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: x}, rules: [
  {apiGroups: [""], resources: [pods, nodes], verbs: [get, list]},
  {apiGroups: [apps], resources: [deployments], resourceNames: [a], verbs: [update]}]}`
		binding = `{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: x, namespace: ns},
  roleRef: {kind: Role, name: x}, subjects: [{kind: ServiceAccount, namespace: system, name: a}]}`
	)
	for name, row := range map[string]struct {
		has, wanted string
		want        *Difference
	}{
		"the same": {has: role, wanted: role},
		"the same in other rules": {wanted: role, has: `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: x},
  rules: [{apiGroups: [apps], resources: [deployments], resourceNames: [a], verbs: [update]},
  {apiGroups: [""], resources: [nodes], verbs: [list, get]},
  {apiGroups: [""], resources: [pods], verbs: [get]}, {apiGroups: [""], resources: [pods], verbs: [list]}]}`},
		"none, and none is to be": {},
		"none":                    {wanted: role, want: &Difference{Object: "ClusterRole x", Absent: true}},
		"one that is not to be":   {has: role, want: &Difference{Object: "ClusterRole x", Unused: true}},
		"less and more": {wanted: role, has: `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: x, annotations:
  {meta.helm.sh/release-name: l, meta.helm.sh/release-namespace: d}}, rules: [
  {apiGroups: [""], resources: [pods, secrets], verbs: [get, list]},
  {apiGroups: [apps], resources: [deployments], verbs: [update]}, {nonResourceURLs: [/metrics], verbs: [get]}]}`,
			want: &Difference{Object: "ClusterRole x", Lacks: []string{"get and list nodes"},
				More: []string{"get /metrics", "update deployments.apps", "get and list secrets"}, Release: "l -n d"}},
		"all of everything": {wanted: role, has: `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: x},
  rules: [{apiGroups: ["*"], resources: ["*"], verbs: ["*"]}]}`, want: &Difference{Object: "ClusterRole x", More: []string{"* *.*"}}},
		"bound the same": {has: binding, wanted: binding},
		"bound to another role, for another account": {wanted: binding, has: `{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding,
  metadata: {name: x, namespace: ns}, roleRef: {kind: ClusterRole, name: admin},
  subjects: [{kind: ServiceAccount, namespace: system, name: b}]}`,
			want: &Difference{Object: "RoleBinding ns/x", Lacks: []string{"Role x", "to ServiceAccount system/a"},
				More: []string{"ClusterRole admin", "to ServiceAccount system/b"}}},
	} {
		has, wanted := parsed(t, row.has), parsed(t, row.wanted)
		var r reference
		if wanted != nil {
			r = referenceTo(wanted)
		} else if has != nil {
			r = referenceTo(has)
		}
		got, err := compare(r, has, wanted)
		require.NoError(t, err, name)
		assert.Equal(t, row.want, got, name)
	}
}

// TestWhatIsSeenHasTheRightsOfWhatWasChosen builds installations, looks at their objects alone, and finds the same rights.
func TestWhatIsSeenHasTheRightsOfWhatWasChosen(t *testing.T) {
	known := map[bool]map[reference]*unstructured.Unstructured{}
	for _, remote := range []bool{false, true} {
		var err error
		known[remote], err = rightsIn(everything(), remote)
		require.NoError(t, err)
	}
	for name, row := range map[string]struct {
		values Values
		seen   seen
		remote bool
	}{
		"the least": {values: Values{Scheduler: Extender, Admission: Policies, Certificates: ByCertManager},
			seen: seen{deployments: map[string][]string{"lodestone-provisioner": {"-v=2"}}}},
		"the most": {values: Values{Scheduler: Second, KubeScheduler: "v1", Admission: Webhook, Certificates: ByJob, VirtualNodes: ptr.To(true),
			Network: ptr.To(true), Services: ptr.To(true), ClusterProfiles: ptr.To(true), OpenShift: ptr.To(true), Monitoring: ptr.To(true)},
			seen: seen{certificates: true, constraints: true, network: true, deployments: map[string][]string{"lodestone-scheduler": nil,
				"lodestone-webhook": nil, "lodestone-virtualnode": {"-v=2", "--multi-cluster-services"},
				"lodestone-provisioner": {"--cluster-profiles-namespace=cluster-inventory"}}}},
		"an agent": {remote: true, seen: seen{deployments: map[string][]string{"lodestone-remote-agent": nil}}},
		"an agent with all": {remote: true, values: Values{Network: ptr.To(true), Services: ptr.To(true)},
			seen: seen{network: true, services: true, deployments: map[string][]string{"lodestone-remote-agent": nil}}},
	} {
		row.values.Registry, row.values.Tag = "r.example.com", "v1"
		chosen, err := rightsIn([]Values{row.values}, row.remote)
		require.NoError(t, err)
		seen, err := rightsIn([]Values{row.seen.values(row.remote)}, row.remote)
		require.NoError(t, err)
		assert.Equal(t, chosen, seen, name)
		for r := range chosen {
			assert.Contains(t, known[row.remote], r, name)
		}
	}
}
