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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/component-base/version"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
)

// agentNamespace is where the remote agent runs.
const agentNamespace = "lodestone-remote"

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

// Program is a Deployment of Lodestone.
type Program struct {
	Name  string `json:"name"`
	Image string `json:"image"`
	// Version is the tag of the image, or its digest.
	Version  string `json:"version"`
	Ready    int32  `json:"ready"`
	Replicas int32  `json:"replicas"`
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
				if *programs, err = read(cmd.Context(), clusters[i], []string{lodestone, agentNamespace}[i]); err != nil {
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

func read(ctx context.Context, cluster *cli.Cluster, namespace string) ([]Program, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	ours := metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=lodestone"}
	list, err := cluster.Client.AppsV1().Deployments(namespace).List(ctx, ours)
	if err != nil {
		return nil, cluster.Explain("list deployments -n "+namespace, err)
	}
	return Programs(list.Items), nil
}

// Programs returns what Deployments run, a row for each image of theirs. It is pure.
func Programs(deployments []appsv1.Deployment) []Program {
	all := []Program{}
	for _, deployment := range deployments {
		var images []string
		for _, container := range deployment.Spec.Template.Spec.Containers {
			if !slices.Contains(images, container.Image) {
				images = append(images, container.Image)
			}
		}
		for _, image := range images {
			all = append(all, Program{Name: deployment.Name, Image: image, Version: tag(image), Ready: deployment.Status.ReadyReplicas,
				Replicas: deployment.Status.Replicas})
		}
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
				"give --lodestone-namespace if they run in another namespace", "the remote agent runs in namespace " + agentNamespace}[i])
		}
		for _, p := range programs {
			fmt.Fprintf(table, "%s\t%s\t%s\t%d/%d ready\t%s\n", where, p.Name, p.Version, p.Ready, p.Replicas, p.Image)
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
