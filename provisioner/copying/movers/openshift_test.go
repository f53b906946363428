package movers_test

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/provisioner/copying/movers"
)

// constraints are the fields of SecurityContextConstraints that a pod of a mover meets.
type constraints struct {
	AllowHostNetwork, AllowHostPID, AllowHostIPC, AllowPrivilegedContainer, AllowPrivilegeEscalation bool
	AllowHostDirVolumePlugin, ReadOnlyRootFilesystem                                                 bool
	AllowedCapabilities, RequiredDropCapabilities                                                    []corev1.Capability
	RunAsUser, SELinuxContext, FSGroup, SupplementalGroups                                           struct{ Type string }
	SeccompProfiles, Volumes                                                                         []string
}

// why is why these constraints do not admit a pod; empty if they do.
func (c constraints) why(spec corev1.PodSpec) (all []string) {
	refuse := func(wrong bool, what string) {
		if wrong {
			all = append(all, what)
		}
	}
	refuse(spec.HostNetwork && !c.AllowHostNetwork || spec.HostPID && !c.AllowHostPID || spec.HostIPC && !c.AllowHostIPC,
		"the host's namespaces")
	const runAsAny = "RunAsAny"
	security := spec.SecurityContext
	refuse(security.RunAsUser != nil && c.RunAsUser.Type != runAsAny, "its user")
	refuse(security.SELinuxOptions != nil && c.SELinuxContext.Type != runAsAny, "its SELinux level")
	refuse(security.FSGroup != nil && c.FSGroup.Type != runAsAny, "its fsGroup")
	refuse(len(security.SupplementalGroups) > 0 && c.SupplementalGroups.Type != runAsAny, "its groups")
	refuse(security.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault || !slices.Contains(c.SeccompProfiles, "runtime/default"),
		"its seccomp profile")
	for _, volume := range spec.Volumes {
		kind := "another"
		switch {
		case volume.PersistentVolumeClaim != nil:
			kind = "persistentVolumeClaim"
		case volume.Secret != nil:
			kind = "secret"
		case volume.EmptyDir != nil:
			kind = "emptyDir"
		}
		refuse(!slices.Contains(c.Volumes, kind), "volume "+volume.Name)
	}
	for _, container := range spec.Containers {
		s := container.SecurityContext
		refuse(ptr.Deref(s.Privileged, false) && !c.AllowPrivilegedContainer, "privileged")
		refuse(ptr.Deref(s.AllowPrivilegeEscalation, true) && !c.AllowPrivilegeEscalation, "privilege escalation")
		refuse(!ptr.Deref(s.ReadOnlyRootFilesystem, false) && c.ReadOnlyRootFilesystem, "a root file system that can be written")
		for _, capability := range s.Capabilities.Add {
			refuse(!slices.Contains(c.AllowedCapabilities, capability), "capability "+string(capability))
		}
		for _, capability := range c.RequiredDropCapabilities {
			refuse(!slices.Contains(s.Capabilities.Drop, capability), "it does not drop "+string(capability))
		}
	}
	return all
}

// components builds components of deploy/ on a base.
func components(t *testing.T, base string, names ...string) (objects []*unstructured.Unstructured) {
	t.Helper()
	deploy, err := filepath.Abs("../../../deploy")
	require.NoError(t, err)
	disk, overlay := filesys.MakeFsOnDisk(), t.TempDir()
	to, err := filepath.EvalSymlinks(overlay)
	require.NoError(t, err)
	way := func(folder string) string {
		path, err := filepath.Rel(to, filepath.Join(deploy, folder))
		require.NoError(t, err)
		return path
	}
	var on []string
	for _, name := range names {
		on = append(on, way("components/"+name))
	}
	require.NoError(t, disk.WriteFile(filepath.Join(overlay, "kustomization.yaml"), []byte("apiVersion: kustomize.config.k8s.io/v1beta1\n"+
		"kind: Kustomization\nresources: ["+way(base)+"]\ncomponents: ["+strings.Join(on, ", ")+"]\n")))
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(disk, overlay)
	require.NoError(t, err)
	for _, resource := range built.Resources() {
		content, err := resource.Map()
		require.NoError(t, err)
		objects = append(objects, &unstructured.Unstructured{Object: content})
	}
	return objects
}

// found decodes the one object of a kind and a name; namespace may be empty.
func found(t *testing.T, objects []*unstructured.Unstructured, kind, namespace, name string, into any) {
	t.Helper()
	i := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool {
		return o.GetKind() == kind && o.GetNamespace() == namespace && o.GetName() == name
	})
	require.GreaterOrEqual(t, i, 0, "%s %s/%s", kind, namespace, name)
	content, err := objects[i].MarshalJSON()
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(content, into))
}

func TestOpenShiftAdmitsMoversAndNothingMore(t *testing.T) {
	for name, row := range map[string]struct{ base, component, account, namespace, binding, in string }{
		"home":   {"base", "openshift", "lodestone-provisioner", "lodestone-system", "RoleBinding", "lodestone-storage"},
		"remote": {"remote", "openshift-remote", "lodestone-remote-agent", "lodestone-remote", "ClusterRoleBinding", ""},
	} {
		t.Run(name, func(t *testing.T) {
			objects := components(t, row.base, row.component)
			var allowed constraints
			found(t, objects, "SecurityContextConstraints", "", "lodestone-mover", &allowed)
			for _, m := range ends {
				for kind, change := range map[string]func(*movers.Mover){
					"a plain one":      func(*movers.Mover) {},
					"one with a level": func(m *movers.Mover) { m.Level = "s0:c1,c2" },
					"one of a block":   func(m *movers.Mover) { m.Block = true },
					"one with a store": func(m *movers.Mover) {
						m.Store = &moverapi.Ticket{Repository: moverapi.Repository{Claim: "repository"}}
					},
					"one that is not root": func(m *movers.Mover) { m.User = &movers.User{ID: 5, Groups: []int64{6}, FSGroup: ptr.To(int64(7))} },
				} {
					m := m
					change(&m)
					assert.Empty(t, allowed.why(movers.PodSpec(m, "")), kind)
				}
				mover := movers.PodSpec(m, "").Containers[0].SecurityContext
				assert.ElementsMatch(t, mover.Capabilities.Add, allowed.AllowedCapabilities, "no more than a mover needs")
				other := movers.PodSpec(m, "")
				other.HostPID, other.Volumes[0].VolumeSource = true, corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{}}
				other.Containers[0].SecurityContext.Privileged = ptr.To(true)
				assert.Equal(t, []string{"the host's namespaces", "volume volume", "privileged"}, allowed.why(other))
			}

			// Who makes movers may use it.
			var role rbacv1.ClusterRole
			found(t, objects, "ClusterRole", "", "lodestone-mover-scc", &role)
			assert.Equal(t, []rbacv1.PolicyRule{{APIGroups: []string{"security.openshift.io"}, Resources: []string{"securitycontextconstraints"},
				ResourceNames: []string{"lodestone-mover"}, Verbs: []string{"use"}}}, role.Rules)
			var binding rbacv1.RoleBinding // a ClusterRoleBinding has the same fields
			found(t, objects, row.binding, row.in, "lodestone-mover-scc", &binding)
			assert.Equal(t, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name}, binding.RoleRef)
			assert.Equal(t, []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: row.namespace, Name: row.account}}, binding.Subjects)
			found(t, objects, "ServiceAccount", row.namespace, row.account, &corev1.ServiceAccount{})
		})
	}
}

func TestWhatNamesItsUserOnOpenShiftMayDoSo(t *testing.T) {
	objects := components(t, "base", "second-scheduler", "virtual-node", "mtls", "openshift")
	var binding rbacv1.RoleBinding
	found(t, objects, "RoleBinding", "lodestone-system", "lodestone-scheduler-scc", &binding)
	named := 0
	for _, object := range objects {
		if object.GetKind() != "Deployment" {
			continue
		}
		var deployment appsv1.Deployment
		found(t, objects, "Deployment", object.GetNamespace(), object.GetName(), &deployment)
		spec := deployment.Spec.Template.Spec
		users := []*int64{spec.SecurityContext.RunAsUser, spec.SecurityContext.RunAsGroup, spec.SecurityContext.FSGroup}
		for _, container := range spec.Containers {
			users = append(users, container.SecurityContext.RunAsUser)
		}
		if !slices.ContainsFunc(users, func(id *int64) bool { return id != nil }) {
			continue
		}
		named++
		assert.Contains(t, binding.Subjects, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: deployment.Namespace,
			Name: spec.ServiceAccountName}, deployment.Name)
	}
	assert.Equal(t, 1, named, "without one that does the right is of no use")
}
