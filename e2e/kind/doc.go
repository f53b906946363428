// Package kind is the suite on two real clusters, home and west, each of one node
// with a real kubelet: pods run, and files are read and written. The shell scripts
// beside it bring the clusters up and install Lodestone; `make e2e` does all.
//
// What a test looks at is where the truth is: the files of a volume are read in the
// node's own file system, a remote pod is asked for at west's API server.
package kind
