//! Coefficients laid out for the kernels.

#[cfg(target_arch = "x86_64")]
use crate::gf;
use crate::{CodeError, DATA_MAX, PARITY_MAX};

/// Most cells a matrix can have: k inputs and m outputs with k + m <= 64 and m <= 32.
const CELLS_MAX: usize = 32 * 32;

const _: () = assert!(crate::STRIPS_MAX == 64 && PARITY_MAX == 32);

/// Outputs as combinations of inputs, prepared once and used for any number of products.
///
/// **The plain sum.** Multiplying costs more than adding, so where some outputs together are a plain sum of inputs, one
/// of them is computed as that sum plus the others of them. P of an encoding is such an output by itself. In recovery,
/// all wanted data strips (and P, if wanted) together are the sum of the known ones and P: one strip of every recovery
/// costs only a XOR. Inputs and outputs are reordered so that the summed output is the first and its inputs come first;
/// callers do not see the order.
#[derive(Clone)]
pub(crate) struct Matrix {
    inputs: u8,
    outputs: u8,
    /// Leading inputs that the first output is the sum of; zero when no output is a sum.
    summed: u8,
    /// Outputs that must be added to the sum to get the first output.
    folded: u32,
    /// Where the caller has the input or output that is used as this one.
    input_order: [u8; DATA_MAX],
    output_order: [u8; PARITY_MAX],
    /// Coefficient of input i in output o at i * outputs + o.
    cells: [u8; CELLS_MAX],
    /// The same as bit matrices, where a kernel of this architecture multiplies with them.
    #[cfg(target_arch = "x86_64")]
    affine: [u64; CELLS_MAX],
}

impl Matrix {
    /// The matrix with `cell(output, input)`, of which the outputs in the mask `sum` together are hoped to be a
    /// plain sum of inputs. Where they are not, the hint is not used.
    pub(crate) fn new(
        inputs: usize,
        outputs: usize,
        sum: u32,
        cell: impl Fn(usize, usize) -> u8,
    ) -> Result<Matrix, CodeError> {
        if inputs > DATA_MAX || outputs > PARITY_MAX || inputs * outputs > CELLS_MAX {
            return Err(CodeError::TooManyStrips { data: inputs, parity: outputs });
        }
        let mut matrix = Matrix {
            inputs: inputs as u8,
            outputs: outputs as u8,
            summed: 0,
            folded: 0,
            input_order: core::array::from_fn(|i| i as u8),
            output_order: core::array::from_fn(|o| o as u8),
            cells: [0; CELLS_MAX],
            #[cfg(target_arch = "x86_64")]
            affine: [0; CELLS_MAX],
        };
        matrix.find_sum(sum, &cell);
        for i in 0..inputs {
            for o in 0..outputs {
                let (input, output) = (matrix.input_order[i], matrix.output_order[o]);
                let c = cell(usize::from(output), usize::from(input));
                matrix.cells[i * outputs + o] = c;
                #[cfg(target_arch = "x86_64")]
                {
                    matrix.affine[i * outputs + o] = gf::AFFINE[usize::from(c)];
                }
            }
        }
        Ok(matrix)
    }

    /// Reorders inputs and outputs if the outputs in the mask are together a sum.
    fn find_sum(&mut self, sum: u32, cell: &impl Fn(usize, usize) -> u8) {
        let (inputs, outputs) = (self.inputs(), self.outputs());
        let members = || (0..outputs).filter(|o| sum >> o & 1 != 0);
        let Some(first) = members().next() else {
            return;
        };
        // What is folded must be in the same group of outputs as the sum itself.
        if outputs > crate::kernels::GROUP && members().count() > 1 {
            return;
        }
        let total = |i: usize| members().fold(0, |total, o| total ^ cell(o, i));
        if (0..inputs).any(|i| total(i) > 1) {
            return;
        }
        let summed = (0..inputs).filter(|&i| total(i) == 1);
        let others = (0..inputs).filter(|&i| total(i) == 0);
        for (place, i) in self.input_order.iter_mut().zip(summed.chain(others)) {
            *place = i as u8;
        }
        self.summed = (0..inputs).filter(|&i| total(i) == 1).count() as u8;
        self.output_order.swap(0, first);
        let order = self.output_order;
        let folded = (1..outputs).filter(|&o| sum >> order[o] & 1 != 0);
        self.folded = folded.fold(0, |mask, o| mask | 1 << o);
    }

    /// Number of inputs.
    pub(crate) fn inputs(&self) -> usize {
        usize::from(self.inputs)
    }

    /// Number of outputs.
    pub(crate) fn outputs(&self) -> usize {
        usize::from(self.outputs)
    }

    /// Leading inputs that the first output is the sum of, with [`Matrix::folded`]; zero when it is not.
    pub(crate) fn summed(&self) -> usize {
        usize::from(self.summed)
    }

    /// Outputs, as a mask, that are added to the sum.
    pub(crate) fn folded(&self) -> u32 {
        self.folded
    }

    /// Where the caller has input `i`.
    pub(crate) fn input_place(&self, i: usize) -> usize {
        usize::from(self.input_order[i])
    }

    /// Where the caller has output `o`.
    pub(crate) fn output_place(&self, o: usize) -> usize {
        usize::from(self.output_order[o])
    }

    /// All coefficients, in the matrix's own order.
    pub(crate) fn cells(&self) -> &[u8; CELLS_MAX] {
        &self.cells
    }

    /// All coefficients as bit matrices, in the matrix's own order.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn affine(&self) -> &[u64; CELLS_MAX] {
        &self.affine
    }

    /// The coefficient of an input in an output, both as the caller has them; zero past either.
    pub(crate) fn coefficient(&self, output: usize, input: usize) -> u8 {
        let (inputs, outputs) = (self.inputs(), self.outputs());
        if input >= inputs || output >= outputs {
            return 0;
        }
        // Of a code, and of most of a recovery, everything is where the caller has it.
        let i = Some(input).filter(|&i| self.input_place(i) == input);
        let i = i.or_else(|| (0..inputs).find(|&i| self.input_place(i) == input));
        let o = Some(output).filter(|&o| self.output_place(o) == output);
        let o = o.or_else(|| (0..outputs).find(|&o| self.output_place(o) == output));
        i.zip(o).map_or(0, |(i, o)| self.cells[i * outputs + o])
    }
}
