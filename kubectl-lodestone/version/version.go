// Package version is the command version: which version this plugin is, and which images the programs of clusters run. Programs
// decides what a Deployment runs, Warnings which versions are not to run together; both are pure.
package version

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/component-base/version"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
)

// AgentNamespace is where the remote agent runs in a remote cluster.
const AgentNamespace = "lodestone-remote"

// networkNamespace is where the network fabric runs, in home and in remote clusters.
const networkNamespace = "lodestone-network"

// moverImage is the environment variable that tells the provisioner which image movers have.
const moverImage = "MOVER_IMAGE"

// readTimeout limits the reads of one cluster.
const readTimeout = 20 * time.Second

// Versions is what -o json and -o yaml print.
type Versions struct {
	Plugin Plugin `json:"plugin"`
	// Home has the programs of the home cluster, Remote those of the one of --remote-context.
	Home   []Program `json:"home,omitempty"`
	Remote []Program `json:"remote,omitempty"`
	// Warnings says which of them are not to run together.
	Warnings []string `json:"warnings,omitempty"`
}

// Plugin is the version of this program.
type Plugin struct {
	Version   string `json:"version"`
	GoVersion string `json:"goVersion"`
	Platform  string `json:"platform"`
}

// Program is a Deployment or DaemonSet of Lodestone, or the mover.
type Program struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	Image     string `json:"image"`
	// Version is the tag of the image, or its digest.
	Version  string `json:"version"`
	Ready    int32  `json:"ready"`
	Replicas int32  `json:"replicas"`
	// OnDemand is true of the mover, whose pods there are only while volumes are copied: nothing of it is to be ready.
	OnDemand bool `json:"onDemand,omitempty"`
}

// New returns the command.
func New(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	var output cli.Output
	var client bool
	var lodestone, remoteContext, remoteKubeconfig string
	command := &cobra.Command{
		Use:   "version",
		Short: "Show the versions of this plugin and of the programs in clusters",
		Long: `Version shows the version of this plugin, and which images the programs of Lodestone in
the home cluster run; with --remote-context those of a remote cluster, too. With
--client no cluster is asked.`,
		Example: `  kubectl lodestone version
  # No cluster is asked
  kubectl lodestone version --client
  # The remote agent of cluster west, too
  kubectl lodestone version --remote-context west`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := output.Check(); err != nil {
				return err
			}
			if client && (remoteContext != "" || remoteKubeconfig != "") {
				return cli.Misuse("--client asks no cluster, and --remote-context names one: leave one of them out")
			}
			info := version.Get()
			all := Versions{Plugin: Plugin{Version: info.GitVersion, GoVersion: info.GoVersion, Platform: info.Platform}}
			if client {
				return write(streams.Out, output, all)
			}
			home, err := cli.ConnectHome(flags)
			if err != nil {
				return err
			}
			clusters := []*cli.Cluster{home}
			if remoteContext != "" || remoteKubeconfig != "" {
				remote, err := cli.ConnectRemote(flags, remoteKubeconfig, remoteContext)
				if err != nil {
					return err
				}
				clusters = append(clusters, remote)
			}
			for i, programs := range []*[]Program{&all.Home, &all.Remote}[:len(clusters)] {
				if *programs, err = Read(cmd.Context(), clusters[i], []string{lodestone, AgentNamespace}[i]); err != nil {
					err = clusters[i].Explain("list deployments and daemonsets of Lodestone", err)
					break
				}
			}
			all.Warnings = Warnings(all)
			// What is known is shown also where a cluster does not answer.
			if unwritten := write(streams.Out, output, all); err == nil {
				err = unwritten
			}
			return err
		},
	}
	output.Add(command, "for programs; default: text", cli.JSON, cli.YAML)
	command.Flags().BoolVar(&client, "client", false, "show the version of this plugin alone")
	command.Flags().StringVar(&remoteContext, "remote-context", "", "kubeconfig context of a remote cluster that is asked, too")
	command.Flags().StringVar(&remoteKubeconfig, "remote-kubeconfig", "",
		"kubeconfig file of the remote cluster; default: the one that kubectl uses")
	command.Flags().StringVar(&lodestone, "lodestone-namespace", "lodestone-system", "namespace of home in which Lodestone runs")
	cli.CompleteFlag(command, flags, "lodestone-namespace", cli.NamesOf(cli.Namespace))
	return command
}

// Read returns the programs of Lodestone in a cluster: those in a namespace, and those of the network fabric where the user may list
// them.
func Read(ctx context.Context, cluster *cli.Cluster, namespace string) ([]Program, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	ours := metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=lodestone"}
	var deployments []appsv1.Deployment
	for _, of := range []string{namespace, networkNamespace} {
		list, err := cluster.Client.AppsV1().Deployments(of).List(ctx, ours)
		switch {
		case err == nil:
			deployments = append(deployments, list.Items...)
		case of == namespace || !apierrors.IsForbidden(err):
			return nil, err
		}
	}
	nodes, err := cluster.Client.AppsV1().DaemonSets(networkNamespace).List(ctx, ours)
	if err != nil && !apierrors.IsForbidden(err) {
		return nil, err
	}
	return Programs(deployments, nodes.Items), nil
}

// Programs returns what Deployments and DaemonSets run, a row for each image of theirs, and the mover that a provisioner starts. It is
// pure.
func Programs(deployments []appsv1.Deployment, daemonSets []appsv1.DaemonSet) []Program {
	all := []Program{}
	add := func(of metav1.ObjectMeta, pod corev1.PodSpec, ready, replicas int32) {
		var images []string
		for _, container := range pod.Containers {
			if !slices.Contains(images, container.Image) {
				images = append(images, container.Image)
				all = append(all, Program{Name: of.Name, Namespace: of.Namespace, Image: container.Image, Version: tag(container.Image),
					Ready: ready, Replicas: replicas})
			}
			for _, variable := range container.Env {
				if variable.Name == moverImage {
					all = append(all, Program{Name: "lodestone-mover", Namespace: of.Namespace, Image: variable.Value,
						Version: tag(variable.Value), OnDemand: true})
				}
			}
		}
	}
	for _, deployment := range deployments {
		add(deployment.ObjectMeta, deployment.Spec.Template.Spec, deployment.Status.ReadyReplicas, deployment.Status.Replicas)
	}
	for _, daemonSet := range daemonSets {
		add(daemonSet.ObjectMeta, daemonSet.Spec.Template.Spec, daemonSet.Status.NumberReady, daemonSet.Status.DesiredNumberScheduled)
	}
	slices.SortFunc(all, func(a, b Program) int { return strings.Compare(a.Name+" "+a.Image, b.Name+" "+b.Image) })
	return all
}

// tag returns the tag of an image, or the beginning of its digest; latest if it has neither.
func tag(image string) string {
	if _, digest, ok := strings.Cut(image, "@"); ok {
		return digest[:min(len(digest), len("sha256:")+12)]
	}
	if at := strings.LastIndex(image, ":"); at > strings.LastIndex(image, "/") {
		return image[at+1:]
	}
	return "latest"
}

func write(out io.Writer, output cli.Output, all Versions) error {
	if output.IsObject() {
		return output.Write(out, all)
	}
	fmt.Fprintf(out, "kubectl-lodestone %s (%s, %s)\n", all.Plugin.Version, all.Plugin.GoVersion, all.Plugin.Platform)
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	for i, programs := range [][]Program{all.Home, all.Remote} {
		if programs == nil {
			continue
		}
		where := []string{"home", "remote"}[i]
		if len(programs) == 0 {
			fmt.Fprintf(table, "%s\tno programs of Lodestone are there: %s\n", where, []string{
				"give --lodestone-namespace if they run in another namespace", "the remote agent runs in namespace " + AgentNamespace}[i])
		}
		for _, p := range programs {
			ready := fmt.Sprintf("%d/%d ready", p.Ready, p.Replicas)
			if p.OnDemand {
				ready = "for copies"
			}
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", where, p.Name, p.Version, ready, p.Image)
		}
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write the versions: %w", err)
	}
	for _, warning := range all.Warnings {
		fmt.Fprintf(out, "warning: %s\n", warning)
	}
	return nil
}
