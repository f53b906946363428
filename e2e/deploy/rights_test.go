package deploy

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

const everywhere = ""

// right is what an identity may or may not do with a resource, which is written
// "group/resource[/subresource]", with an empty group for the core. Several verbs are separated by commas.
type right struct {
	verb, resource, namespace, name string
	allowed                         bool
}

func TestProvisionerHasTheRightsThatItNeedsAndNoOthers(t *testing.T) {
	apply(t, "base")
	check(t, systemNamespace, "lodestone-provisioner", []right{
		{verb: "create,delete", resource: "/persistentvolumes", allowed: true},
		{verb: "update", resource: "/persistentvolumes"},
		{verb: "patch", resource: "/persistentvolumes/status", allowed: true},
		{verb: "update", resource: "/persistentvolumes/status"},
		{verb: "patch", resource: "/persistentvolumeclaims", namespace: everywhere, allowed: true},
		{verb: "patch", resource: "/persistentvolumeclaims/status", namespace: everywhere, allowed: true},
		{verb: "update", resource: "/persistentvolumeclaims/status", namespace: "default"},
		{verb: "get", resource: "storage.k8s.io/volumeattributesclasses", allowed: true},
		{verb: "create", resource: "storage.k8s.io/volumeattributesclasses"},
		{verb: "create,delete", resource: "/persistentvolumeclaims", namespace: "lodestone-storage", allowed: true},
		{verb: "create,delete", resource: "/persistentvolumeclaims", namespace: "default"},
		{verb: "watch", resource: "snapshot.storage.k8s.io/volumesnapshots", namespace: everywhere, allowed: true},
		{verb: "create,delete", resource: "snapshot.storage.k8s.io/volumesnapshots", namespace: "lodestone-storage", allowed: true},
		{verb: "create,delete", resource: "snapshot.storage.k8s.io/volumesnapshots", namespace: "default"},
		{verb: "create,delete", resource: "snapshot.storage.k8s.io/volumesnapshotcontents", allowed: true},
		{verb: "patch", resource: "snapshot.storage.k8s.io/volumesnapshotcontents/status", allowed: true},
		{verb: "list", resource: "groupsnapshot.storage.k8s.io/volumegroupsnapshots", namespace: everywhere, allowed: true},
		{verb: "create,delete", resource: "groupsnapshot.storage.k8s.io/volumegroupsnapshots", namespace: "lodestone-storage", allowed: true},
		{verb: "create,delete", resource: "groupsnapshot.storage.k8s.io/volumegroupsnapshots", namespace: "default"},
		{verb: "patch", resource: "groupsnapshot.storage.k8s.io/volumegroupsnapshotcontents", allowed: true},
		{verb: "patch", resource: "groupsnapshot.storage.k8s.io/volumegroupsnapshotcontents/status", allowed: true},
		{verb: "delete", resource: "groupsnapshot.storage.k8s.io/volumegroupsnapshotcontents"},
		{verb: "get,list", resource: "groupsnapshot.storage.k8s.io/volumegroupsnapshotclasses", allowed: true},
		{verb: "get,list", resource: "snapshot.storage.k8s.io/volumesnapshotclasses", allowed: true},
		{verb: "create", resource: "snapshot.storage.k8s.io/volumesnapshotclasses"},
		{verb: "list,create", resource: "/secrets", namespace: systemNamespace, allowed: true},
		{verb: "get,create", resource: "/secrets", namespace: "default"},
		{verb: "list", resource: "/secrets", namespace: everywhere},
		{verb: "create", resource: "/secrets", namespace: "lodestone-storage", allowed: true},
		{verb: "get", resource: "/secrets", namespace: "lodestone-storage"},
		{verb: "create", resource: "/pods", namespace: "lodestone-storage", allowed: true},
		{verb: "create", resource: "/pods/portforward", namespace: "lodestone-storage", allowed: true},
		{verb: "create", resource: "/pods/portforward", namespace: "default"},
		{verb: "create", resource: "/pods/exec", namespace: "lodestone-storage"},
		// Only where the owner of a namespace binds lodestone-freeze: TestFreezingIsARightOfOneNamespace.
		{verb: "create,get", resource: "/pods/exec", namespace: "default"},
		{verb: "watch", resource: "lodestone.dev/volumemoves", namespace: everywhere, allowed: true},
		{verb: "update", resource: "lodestone.dev/volumemoves/status", namespace: "default", allowed: true},
		{verb: "create", resource: "lodestone.dev/volumemoves", namespace: "default", allowed: true},
		{verb: "fence", resource: "lodestone.dev/remoteclusters", allowed: true},
		{verb: "giveup,create,delete", resource: "lodestone.dev/remoteclusters"},
		{verb: "watch", resource: "lodestone.dev/volumereplicas", namespace: everywhere, allowed: true},
		{verb: "update", resource: "lodestone.dev/volumereplicas/status", namespace: "default", allowed: true},
		{verb: "create", resource: "lodestone.dev/volumereplicas", namespace: "default", allowed: true},
		{verb: "delete", resource: "lodestone.dev/volumereplicas", namespace: "default"},
		{verb: "update", resource: "coordination.k8s.io/leases", namespace: systemNamespace, name: "lodestone-provisioner", allowed: true},
		{verb: "update", resource: "coordination.k8s.io/leases", namespace: systemNamespace, name: "lodestone-scheduler"},
		{verb: "create", resource: "coordination.k8s.io/leases", namespace: "kube-system"},
		{verb: "create", resource: "/events", namespace: "default", allowed: true},
		{verb: "list", resource: "/events", namespace: "lodestone-storage", allowed: true},
		{verb: "list", resource: "/events", namespace: "default"},
		{verb: "update", resource: "lodestone.dev/remoteclusters/status", allowed: true},
		{verb: "update", resource: "/nodes"},
		{verb: "watch", resource: "/pods", namespace: everywhere, allowed: true},
		{verb: "patch", resource: "/pods", namespace: "default", allowed: true}, // confined by admission: e2e/moves
		{verb: "update", resource: "/pods", namespace: "default"},
		// Admission refuses it outside lodestone-storage, and says whether the pod got the gate of a move: e2e/moves.
		{verb: "create", resource: "/pods", namespace: "default", allowed: true},
		{verb: "create", resource: "/serviceaccounts/token", namespace: systemNamespace},
		{verb: "update", resource: "storage.k8s.io/storageclasses"},
		{verb: "watch", resource: "storage.k8s.io/csistoragecapacities", namespace: everywhere, allowed: true},
		{verb: "create,update,delete", resource: "storage.k8s.io/csistoragecapacities", namespace: systemNamespace, allowed: true},
		{verb: "create", resource: "storage.k8s.io/csistoragecapacities", namespace: "default"},
		{verb: "delete", resource: "storage.k8s.io/csistoragecapacities", namespace: "kube-system"},
		{verb: "watch", resource: "storage.k8s.io/csidrivers", allowed: true},
		{verb: "patch", resource: "storage.k8s.io/csidrivers", name: "lodestone.dev", allowed: true},
		{verb: "patch", resource: "storage.k8s.io/csidrivers", name: "disk.example.com"},
		{verb: "delete", resource: "storage.k8s.io/csidrivers", name: "lodestone.dev"},
		{verb: "impersonate", resource: "/users"},
	})
}

func TestTheVirtualNodeProgramGetsWhatSharingServicesTakes(t *testing.T) {
	testbed.Require(t)
	must.Kubectl(t, cluster, "", "apply", "-f", root+"components/services/rights.yaml")
	t.Cleanup(func() {
		_, err := cluster.Kubectl(context.Background(), "", "delete", "-f", root+"components/services/rights.yaml")
		assert.NoError(t, err)
	})
	const api = "multicluster.x-k8s.io/"
	check(t, systemNamespace, "lodestone-virtualnode", []right{
		{verb: "watch", resource: api + "serviceexports", namespace: everywhere, allowed: true},
		{verb: "update", resource: api + "serviceexports/status", namespace: everywhere, allowed: true},
		{verb: "create,update,delete", resource: api + "serviceexports", namespace: "default"},
		{verb: "create", resource: api + "serviceimports", namespace: everywhere, allowed: true},
		{verb: "update", resource: api + "serviceimports/status", namespace: everywhere, allowed: true},
		{verb: "patch", resource: api + "serviceimports", namespace: "default"},
		{verb: "create", resource: "/services", namespace: everywhere, allowed: true}, // confined by admission: e2e/services
		{verb: "delete", resource: "discovery.k8s.io/endpointslices", namespace: everywhere, allowed: true},
		{verb: "update", resource: "/services/status", namespace: "default"},
		{verb: "create", resource: "/endpoints", namespace: "default"},
	})
}

func TestExtenderOnlyReads(t *testing.T) {
	apply(t, "base")
	var rights []right
	for _, resource := range []string{
		"/persistentvolumeclaims", "/persistentvolumes", "/nodes", "/namespaces", "/pods", "storage.k8s.io/csinodes",
		"storage.k8s.io/storageclasses", "lodestone.dev/remoteclusters",
	} {
		rights = append(rights, right{verb: "watch", resource: resource, allowed: true})
		rights = append(rights, right{verb: "create,update,patch,delete,deletecollection", resource: resource})
	}
	rights = append(rights,
		right{verb: "list", resource: "/secrets"},
		right{verb: "list", resource: "/secrets", namespace: systemNamespace},
		right{verb: "create", resource: "/events", namespace: "default"},
	)
	check(t, systemNamespace, "lodestone-extender", rights)
}

// One identity is that of kube-scheduler and of the extender beside it.
func TestSecondSchedulerHasTheRightsOfBothItsPrograms(t *testing.T) {
	apply(t, "overlays/managed")
	check(t, systemNamespace, "lodestone-scheduler", []right{
		{verb: "watch", resource: "/pods", namespace: everywhere, allowed: true},
		{verb: "create", resource: "/pods/binding", namespace: "default", allowed: true},
		{verb: "update", resource: "/persistentvolumeclaims", namespace: "default", allowed: true},
		{verb: "watch", resource: "storage.k8s.io/storageclasses", allowed: true},
		{verb: "update", resource: "resource.k8s.io/resourceclaims/status", namespace: "default", allowed: true},
		{verb: "watch", resource: "lodestone.dev/remoteclusters", allowed: true},
		{verb: "update", resource: "coordination.k8s.io/leases", namespace: systemNamespace, name: "lodestone-scheduler", allowed: true},
		{verb: "update", resource: "coordination.k8s.io/leases", namespace: systemNamespace, name: "lodestone-provisioner"},
		{verb: "update", resource: "lodestone.dev/remoteclusters"},
		{verb: "create", resource: "/pods", namespace: "default"},
		{verb: "list", resource: "/secrets", namespace: everywhere},
		{verb: "get", resource: "/secrets", namespace: systemNamespace},
		{verb: "create", resource: "/serviceaccounts/token", namespace: systemNamespace},
	})
	// The other tests are about overlays in which the extender has its own identity.
	apply(t, "base")
}

func TestHomeClusterWritesOnlyClaimsAndOnlyWhereItIsBound(t *testing.T) {
	apply(t, "remote-volumes")
	must.Kubectl(t, cluster, "", "apply", "-f", root+"examples/remote-namespace.yaml")
	check(t, "lodestone-volumes", "lodestone-home", []right{
		{verb: "watch", resource: "/persistentvolumes", allowed: true},
		{verb: "watch", resource: "storage.k8s.io/storageclasses", allowed: true},
		{verb: "get", resource: "/namespaces", name: "kube-system", allowed: true},
		{verb: "create", resource: "authorization.k8s.io/selfsubjectaccessreviews", allowed: true},
		{verb: "get", resource: "storage.k8s.io/volumeattributesclasses", allowed: true},
		{verb: "create", resource: "storage.k8s.io/volumeattributesclasses"},
		{verb: "patch", resource: "/persistentvolumeclaims/status", namespace: "shop"},
		{verb: "create,watch,patch,delete", resource: "/persistentvolumeclaims", namespace: "shop", allowed: true},
		{verb: "create,watch", resource: "snapshot.storage.k8s.io/volumesnapshots", namespace: "shop", allowed: true},
		{verb: "create", resource: "snapshot.storage.k8s.io/volumesnapshots", namespace: "default"},
		{verb: "create", resource: "groupsnapshot.storage.k8s.io/volumegroupsnapshots", namespace: "shop", allowed: true},
		{verb: "create", resource: "groupsnapshot.storage.k8s.io/volumegroupsnapshots", namespace: "default"},
		{verb: "list", resource: "groupsnapshot.storage.k8s.io/volumegroupsnapshotcontents"},
		{verb: "list", resource: "snapshot.storage.k8s.io/volumesnapshotcontents"},
		{verb: "list", resource: "/events", namespace: "shop", allowed: true},
		{verb: "create", resource: "/persistentvolumeclaims", namespace: "default"},
		{verb: "create", resource: "/persistentvolumeclaims", namespace: "kube-system"},
		{verb: "list", resource: "/persistentvolumeclaims", namespace: everywhere},
		{verb: "patch,delete", resource: "/persistentvolumes"},
		{verb: "get", resource: "/secrets", namespace: "shop"},
		{verb: "create", resource: "/pods", namespace: "shop"},
		{verb: "get", resource: "/namespaces", name: "default"},
		{verb: "create", resource: "/namespaces"},
		{verb: "watch", resource: "/nodes", allowed: true},
		{verb: "get", resource: "/nodes/proxy"},
		{verb: "patch", resource: "/nodes"},
		{verb: "create", resource: "/serviceaccounts/token", namespace: "lodestone-volumes"},
		{verb: "get,create,update", resource: "coordination.k8s.io/leases", namespace: "lodestone-volumes", allowed: true},
		{verb: "delete", resource: "coordination.k8s.io/leases", namespace: "lodestone-volumes"},
		{verb: "get", resource: "coordination.k8s.io/leases", namespace: "kube-system"},
		{verb: "create", resource: "rbac.authorization.k8s.io/rolebindings", namespace: "shop"},
	})
}

func check(t *testing.T, namespace, serviceAccount string, rights []right) {
	t.Helper()
	user := "system:serviceaccount:" + namespace + ":" + serviceAccount
	for _, right := range rights {
		for verb := range strings.SplitSeq(right.verb, ",") {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User:               user,
				Groups:             []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
				ResourceAttributes: right.attributes(verb),
			}}
			// The authorizer learns of a new binding a moment after it is made.
			require.EventuallyWithT(t, func(c *assert.CollectT) {
				answer, err := cluster.Client().AuthorizationV1().SubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
				require.NoError(c, err)
				assert.Equal(c, right.allowed, answer.Status.Allowed, "%s: %s of %+v", user, verb, right)
			}, waitLong, poll)
		}
	}
}

func (r right) attributes(verb string) *authorizationv1.ResourceAttributes {
	group, resource, _ := strings.Cut(r.resource, "/")
	resource, subresource, _ := strings.Cut(resource, "/")
	return &authorizationv1.ResourceAttributes{
		Verb: verb, Group: group, Resource: resource, Subresource: subresource,
		Namespace: r.namespace, Name: r.name, Version: "*",
	}
}

// TestFreezingIsARightOfOneNamespace binds what the provisioner needs to freeze applications, as the admin of a namespace, who may give
// no more than they have.
func TestFreezingIsARightOfOneNamespace(t *testing.T) {
	apply(t, "base")
	namespace, other := testbed.Namespace(t, cluster), testbed.Namespace(t, cluster)
	must.Kubectl(t, cluster, "", "create", "rolebinding", "owner", "-n", namespace, "--clusterrole=admin", "--user=owner")
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		_, err := cluster.Kubectl(t.Context(), "", "create", "rolebinding", "lodestone-freeze", "-n", namespace, "--clusterrole=lodestone-freeze",
			"--serviceaccount=lodestone-system:lodestone-provisioner", "--as=owner")
		assert.NoError(c, err)
	}, waitLong, poll)
	check(t, systemNamespace, "lodestone-provisioner", []right{
		{verb: "create,get", resource: "/pods/exec", namespace: namespace, allowed: true},
		{verb: "create", resource: "/pods/attach", namespace: namespace},
		{verb: "create", resource: "/pods/ephemeralcontainers", namespace: namespace},
		{verb: "get", resource: "/secrets", namespace: namespace},
		{verb: "create", resource: "/pods/exec", namespace: other},
		{verb: "create", resource: "/pods/exec", namespace: everywhere},
	})
}

func TestWhoMayWorkInANamespaceMayMoveItsVolumes(t *testing.T) {
	apply(t, "base")
	namespace := testbed.Namespace(t, cluster)
	for _, role := range []string{"view", "edit", "admin"} {
		must.Create(t, cluster.Client().RbacV1().RoleBindings(namespace), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: role}},
		})
		works := role != "view"
		check(t, namespace, role, []right{
			{verb: "get,watch", resource: "lodestone.dev/volumemoves", namespace: namespace, allowed: true},
			{verb: "create,patch,delete", resource: "lodestone.dev/volumemoves", namespace: namespace, allowed: works},
			{verb: "update", resource: "lodestone.dev/volumemoves/status", namespace: namespace},
			{verb: "get", resource: "lodestone.dev/volumereplicas", namespace: namespace, allowed: true},
			{verb: "create,delete", resource: "lodestone.dev/volumereplicas", namespace: namespace, allowed: works},
			{verb: "update", resource: "lodestone.dev/volumereplicas/status", namespace: namespace},
			{verb: "create", resource: "lodestone.dev/volumemoves", namespace: "default"},
			{verb: "get", resource: "lodestone.dev/remoteclusters"},
		})
	}
}
