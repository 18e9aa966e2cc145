package data

var Readable = readable
