package built

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// KubernetesVersion is the version of control planes and nodes, unless Chosen says another one.
const KubernetesVersion = "v1.36.3"

// Variable is the environment variable that chooses the Kubernetes of clusters by its minor version, as 1.34: one for which
// there is a kubernetes-<version>.mod beside the go.mod of programs. Of two versions, as 1.34,1.36, the second one is that of remote
// clusters.
const Variable = "LODESTONE_KUBERNETES"

// Chosen returns a set, ControlPlane or Node, of the Kubernetes that Variable asks for, of remote clusters or of others, with its
// version.
func Chosen(set Set, remote bool) (Set, error) {
	minor, ofRemotes, two := strings.Cut(os.Getenv(Variable), ",")
	if remote && two {
		minor = ofRemotes
	}
	set.Version = KubernetesVersion
	if minor == "" || strings.HasPrefix(KubernetesVersion, "v"+minor+".") {
		return set, nil
	}
	root, err := SourceTree()
	if err != nil {
		return Set{}, err
	}
	set.Name, set.Modfile = set.Name+"-"+minor, "kubernetes-"+minor+".mod"
	content, err := os.ReadFile(filepath.Join(root, programs, set.Modfile))
	if err != nil {
		return Set{}, fmt.Errorf("there is no Kubernetes %q here: see which %s/kubernetes-*.mod there are: %w", minor,
			programs, err)
	}
	found := regexp.MustCompile(`(?m)^\tk8s\.io/kubernetes (v\S+)$`).FindSubmatch(content)
	if found == nil {
		return Set{}, fmt.Errorf("%s/%s requires no k8s.io/kubernetes", programs, set.Modfile)
	}
	set.Version = string(found[1])
	return set, nil
}

// programs is the module of all programs of others but restic, which the mover's image has,
// the local-path provisioner, which cannot be in one module with etcd, and what is of another Kubernetes.
const programs = "e2e/programs"

// The sets that tests and clusters need.
var (
	// ControlPlane is etcd, the control plane and kubectl in one program.
	ControlPlane = Set{Name: "controlplane", Folder: programs, Packages: []string{"./controlplane"}}
	// Disk is the CSI driver for tests.
	Disk = Set{Name: "disk", Folder: "e2e/disk", Packages: []string{"."}}
	// Sidecars are those of CSI drivers, with the folder of the snapshots' custom resource
	// definitions.
	Sidecars = Set{Name: "sidecars", Folder: programs, Packages: []string{
		"github.com/kubernetes-csi/external-attacher/v4/cmd/csi-attacher",
		"github.com/kubernetes-csi/external-provisioner/v5/cmd/csi-provisioner",
		"github.com/kubernetes-csi/external-resizer/cmd/csi-resizer",
		"github.com/kubernetes-csi/external-snapshotter/v8/cmd/csi-snapshotter",
		"github.com/kubernetes-csi/external-snapshotter/v8/cmd/snapshot-controller",
	}, extra: copyDefinitions}
	// Restic is what the mover's image has, without what restic's own builds leave out.
	Restic = Set{Name: "restic", Folder: "mover/content/restic/program", Packages: []string{"tool"}, Tags: "disable_grpc_modules"}
	// RestServer is an object store: restic's own.
	RestServer = Set{Name: "rest-server", Folder: programs, Packages: []string{"github.com/restic/rest-server/cmd/rest-server"}}
	// Kind, Node, CoreDNS and LocalPath are what clusters without a registry consist of: kind itself; all of Kubernetes in one
	// program; CoreDNS and pause, which are the same for each version; the provisioner of the class standard.
	Kind      = Set{Name: "kind", Folder: programs, Packages: []string{"sigs.k8s.io/kind"}}
	Node      = Set{Name: "node", Folder: programs, Packages: []string{"./kubernetes"}}
	CoreDNS   = Set{Name: "coredns", Folder: programs, Packages: []string{"./coredns", "./pause"}}
	LocalPath = Set{Name: "local-path-provisioner", Folder: programs + "/local-path-provisioner", Packages: []string{"tool"}}
	// Liqo is Liqo 1.2.0: its controllers, its virtual kubelet and liqoctl. Only the suite of nodes of Liqo needs it.
	Liqo = Set{Name: "liqo", Folder: "e2e/liqo", Packages: []string{"tool"}, Version: "v1.35.2"}
	// NewerScheduler is kube-scheduler of the next Kubernetes. It is not among Sets: few tests need it.
	NewerScheduler = Set{Name: "newer-scheduler", Folder: programs + "/newer-scheduler", Packages: []string{"tool"}, Version: "v1.37.2"}
)

// Sets are all of them.
func Sets() []Set {
	return []Set{ControlPlane, Disk, Sidecars, Restic, RestServer, Kind, Node, CoreDNS, LocalPath, Liqo}
}

// Definitions is the folder, among the sidecars, of the custom resource definitions of
// snapshots.
const Definitions = "crd"

// copyDefinitions copies them out of the module that has them.
func copyDefinitions(ctx context.Context, module, into string) error {
	cmd := command(ctx, module, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/kubernetes-csi/external-snapshotter/client/v8")
	from, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("find the custom resource definitions: %w", err)
	}
	source := filepath.Join(string(from[:len(from)-1]), "config", "crd")
	if err := os.CopyFS(filepath.Join(into, Definitions), os.DirFS(source)); err != nil {
		return fmt.Errorf("copy the custom resource definitions: %w", err)
	}
	return nil
}
