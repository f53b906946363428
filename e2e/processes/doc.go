// Package processes runs pods of a test bed as processes of this machine, for
// tests of programs that work on real files: it takes the place of a container
// runtime without needing one. A pod has its own address on loopback, another one
// that leads nowhere, and its own folders for emptyDirs and Secrets; the paths at
// which its containers mount volumes are replaced in their commands and arguments
// by the folders that stand for those volumes. Nothing is confined: programs and
// commands are those of the tests themselves.
package processes
